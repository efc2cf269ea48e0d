"""Checks of compiled clients: the runtime (static and shared) and the driver API."""
import glob
import os
import subprocess

from . import reports
from .core import compare_problems, expectation, parallel, report_problems, tool
from .results import row

# mode of runtime_alloc.cu -> (exit code, how the report must say that the process ended)
RUNTIME_MODES = {
    "patterns": (0, "exit"), "threads": (0, "exit"), "reset": (0, "exit"),
    "entry-points": (0, "exit"), "return": (7, "exit"), "exit": (7, "exit"),
    "_exit": (7, "_exit"), "quick_exit": (7, "quick_exit"), "static-dtor": (7, "exit"),
    "atexit": (7, "exit"),
}
DRIVER_ENDS = {"return": (7, "exit"), "_exit": (7, "_exit"), "quick_exit": (7, "quick_exit"),
               "atexit": (7, "exit")}


def judge(check, what, native, shim, code, end):
    """The row of a C client: same output, same stderr, and a report with exactly its own tally."""
    problems = compare_problems(native, shim, code, same_stderr=True)
    expected = expectation(shim.out)
    if expected is None:
        problems.append("the program printed no tally")
    problems += report_problems(shim, expected, end, code)
    return row(check, what, f"exit {native.code}, {len(native.out.splitlines())} facts",
               problems[0].splitlines()[0] if problems else
               "same; " + reports.summary(shim.report) + ", as the program counts",
               "FAIL" if problems else "ok", "\n".join(problems))


def _rows_of_modes(context, check, title, path, modes, before=()):
    def one(mode):
        code, end = modes[mode]
        native, shim = context.pair([path, *before, mode], timeout=60)
        return judge(check, f"{title}: {mode}", native, shim, code, end)

    return parallel([lambda m=mode: one(m) for mode in modes])


def nvcc_program(context, name, source, *flags):
    """A client built with nvcc: (path, None) or (None, why not)."""
    nvcc = tool("nvcc")
    if nvcc is None:
        return None, "no nvcc here"
    # -arch=native asks the GPU; a machine without one (a trial run) still compiles.
    arch = "native" if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia0") else "sm_90"
    if "shared" in flags:
        # The shared runtime must be found without settings that the shim's runs would have too.
        home = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
            if glob.glob(os.path.join(home, folder, "libcudart.so*")):
                flags += ("-Xlinker", f"-rpath={os.path.join(home, folder)}")
                break
    return context.build_once(name, [nvcc, f"-arch={arch}", "-O2", *flags,
                                     os.path.join(context.clients, "cuda", source)])


def _gcc(context, name, source, *flags):
    include = subprocess.run([os.path.join(context.root, "scripts", "find-cuda-include")],
                             capture_output=True, text=True, check=False)
    if include.returncode != 0:
        return None, include.stderr.strip()
    return context.build_once(name, [
        tool("cc") or tool("gcc") or "cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-isystem",
        include.stdout.strip(), os.path.join(context.clients, "cuda", source), "-ldl", "-pthread",
        *flags])


def build_failed(check, title, why):
    return [row(check, title, "cannot be built", "", "skip" if why.startswith("no ") else "FAIL", why)]


def runtime_program(context, kind):
    """runtime_alloc.cu with the static or the shared runtime: (path, None) or (None, why not)."""
    return nvcc_program(context, f"runtime_{kind}", "runtime_alloc.cu", "-cudart", kind)


def driver_program(context, name, source):
    """A driver-API client built with the system's compiler: (path, None) or (None, why not)."""
    return _gcc(context, name, source)


def runtime(context, check, kind):
    path, why = runtime_program(context, kind)
    title = f"{kind} cudart"
    if path is None:
        return build_failed(check, title, why)
    return _rows_of_modes(context, check, title, path, RUNTIME_MODES)


def runtime_static(context, check):
    return runtime(context, check, "static")


def runtime_shared(context, check):
    return runtime(context, check, "shared")


def two_runtimes(context, check):
    title = "two libcudart in one process"
    library, why = nvcc_program(context, "libtworuntimes.so", "two_runtimes_lib.cu", "-cudart", "static",
                         "-shared", "-Xcompiler", "-fPIC")
    path, why_main = nvcc_program(context, "two_runtimes", "two_runtimes.cu", "-cudart", "shared")
    if library is None or path is None:
        return build_failed(check, title, why or why_main)
    native, shim = context.pair([path, library])
    return [judge(check, title, native, shim, 0, "exit")]


def _libcuda_to_link():
    """A libcuda.so to name at link time: the toolkit's stub, or the driver's own."""
    for pattern in ("/usr/local/cuda*/lib*/stubs/libcuda.so",
                    "/usr/local/cuda*/targets/*/lib/stubs/libcuda.so",
                    "/usr/local/nvidia/lib64/libcuda.so*", "/usr/lib/x86_64-linux-gnu/libcuda.so*",
                    "/usr/lib64/libcuda.so*"):
        found = sorted(glob.glob(pattern))
        if found:
            return found[0]
    return None


def driver(context, check):
    rows = []
    path, why = _gcc(context, "driver_alloc", "driver_alloc.c")
    if path is None:
        return build_failed(check, "driver API", why)
    rows += _rows_of_modes(context, check, "driver API by dlsym", path, DRIVER_ENDS, ("dlsym",))
    rows += _rows_of_modes(context, check, "driver API by cuGetProcAddress", path,
                           {"return": DRIVER_ENDS["return"]}, ("getproc",))
    libcuda = _libcuda_to_link()
    if libcuda is None:
        return rows + [row(check, "driver API linked directly", "", "", "skip",
                           "no libcuda.so to link against")]
    path, why = _gcc(context, "driver_direct", "driver_alloc.c", "-DDRIVER_DIRECT",
                     "-Wl,--allow-shlib-undefined", libcuda)
    if path is None:
        return rows + build_failed(check, "driver API linked directly", why)
    return rows + _rows_of_modes(context, check, "driver API linked directly", path,
                                 {"return": DRIVER_ENDS["return"]}, ("direct",))
