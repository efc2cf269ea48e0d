"""Checks of compiled programs: the runtime (static and shared), the driver API, conformance."""
import glob
import os
import re
import subprocess

from . import reports
from .core import (compare_problems, difference, expectation, parallel, report_problems, shim_noise,
                   tool)
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


def _nvcc(context, name, source, *flags):
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


def _build_failed(check, title, why):
    return [row(check, title, "cannot be built", "", "skip" if why.startswith("no ") else "FAIL", why)]


def runtime_program(context, kind):
    """runtime_alloc.cu with the static or the shared runtime: (path, None) or (None, why not)."""
    return _nvcc(context, f"runtime_{kind}", "runtime_alloc.cu", "-cudart", kind)


def driver_program(context, name, source):
    """A driver-API client built with the system's compiler: (path, None) or (None, why not)."""
    return _gcc(context, name, source)


def runtime(context, check, kind):
    path, why = runtime_program(context, kind)
    title = f"{kind} cudart"
    if path is None:
        return _build_failed(check, title, why)
    return _rows_of_modes(context, check, title, path, RUNTIME_MODES)


def runtime_static(context, check):
    return runtime(context, check, "static")


def runtime_shared(context, check):
    return runtime(context, check, "shared")


def two_runtimes(context, check):
    title = "two libcudart in one process"
    library, why = _nvcc(context, "libtworuntimes.so", "two_runtimes_lib.cu", "-cudart", "static",
                         "-shared", "-Xcompiler", "-fPIC")
    path, why_main = _nvcc(context, "two_runtimes", "two_runtimes.cu", "-cudart", "shared")
    if library is None or path is None:
        return _build_failed(check, title, why or why_main)
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
        return _build_failed(check, "driver API", why)
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
        return rows + _build_failed(check, "driver API linked directly", why)
    return rows + _rows_of_modes(context, check, "driver API linked directly", path,
                                 {"return": DRIVER_ENDS["return"]}, ("direct",))


def _is_program(path):
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF" and ".so" not in os.path.basename(path)


def conformance_programs(build):
    folder = os.path.join(build, "tests", "conformance")
    if not os.path.isdir(folder):
        return []
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))
            if _is_program(os.path.join(folder, name))]


def conformance_env(root, program):
    """Settings that a program asks for in its source: lines "env: NAME=VALUE" of its first comment."""
    path = os.path.join(root, "tests", "conformance", os.path.basename(program) + ".c")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        head = file.read(4000).split("*/")[0]
    return dict(re.findall(r"\benv: ([A-Z_]+)=(\S+)", head))


def four_ways(context, program, only=("gpu", "sim"), timeout=60):
    """{"gpu native": Result, "gpu shim": …, "sim native": …, "sim shim": …}."""
    own = conformance_env(context.root, program)
    environments = {"gpu": own, "sim": {"LD_LIBRARY_PATH": context.sim, **own}}
    jobs, names = [], []
    for where in only:
        for shim in (False, True):
            report = os.path.join(context.folder("conformance"), "report.json") if shim else None
            jobs.append(lambda w=where, s=shim, r=report: context.run(
                [program], environments[w], timeout, None, s, r))
            names.append(f"{where} {'shim' if shim else 'native'}")
    return dict(zip(names, parallel(jobs)))


def conformance_problems(ways):
    """(problems between native and shim on the GPU, problems between GPU and simulator)."""
    shim_problems, sim_problems = [], []
    native = ways["gpu native"]
    for name, result in ways.items():
        failure = result.failure() or ""
        if failure == "exit code 77, expected 0":
            failure = ""
        if failure:
            where = shim_problems if name == "gpu shim" else sim_problems
            where.append(f"{name}: {failure}\n{result.tail()}")
        noise = shim_noise(result.err)
        if noise:
            shim_problems.append(f"{name}: noise on stderr: {'; '.join(noise[:3])}")
    for name in ("gpu shim", "sim native", "sim shim"):
        if name in ways:
            diff = difference(native.out, ways[name].out, ("gpu native", name))
            if diff:
                (shim_problems if name == "gpu shim" else sim_problems).append(diff)
    report = ways["gpu shim"].report
    if report is not None:
        shim_problems += reports.structure_problems(report)
    return shim_problems, sim_problems


def conformance(context, check):
    programs = conformance_programs(context.build)
    if not programs:
        return [row(check, "conformance programs", "", "", "skip",
                    "none in the build (tests/conformance)")]
    only = ("gpu", "sim") if os.path.isdir(context.sim) else ("gpu",)
    verdicts, rows = {}, []
    for start in range(0, len(programs), 4):
        some = programs[start:start + 4]
        for program, ways in zip(some, parallel(
                [lambda p=p: four_ways(context, p, only) for p in some])):
            verdicts[program] = ways, conformance_problems(ways)
    for program, (ways, problems) in list(verdicts.items()):
        # Once more, alone: a difference that only shows under load is said to be one.
        if any(problems) and not any(way.timed_out for way in ways.values()):
            again = {}
            for where in only:
                again.update(four_ways(context, program, (where,)))
            verdicts[program] = again, conformance_problems(again)
            if not any(verdicts[program][1]):
                rows.append(row(check, f"conformance: {os.path.basename(program)}", "", "", "info",
                                "differed while others ran, not when alone:\n"
                                + "\n".join(problems[0] + problems[1])))
    skipped = [p for p, (ways, _) in verdicts.items() if ways["gpu native"].code == 77]
    bad_shim = [p for p, (_, problems) in verdicts.items() if problems[0]]
    bad_sim = [p for p, (_, problems) in verdicts.items() if problems[1]]
    lines = sum(len(ways["gpu native"].out.splitlines()) for ways, _ in verdicts.values())
    count = len(programs)
    names = "\n".join(os.path.basename(p) for p in skipped)
    head = [row(check, f"conformance: {count} programs on the GPU",
                f"{lines} facts, {len(skipped)} programs skip themselves",
                f"{count - len(bad_shim)} of {count} the same", "FAIL" if bad_shim else "ok",
                f"skipped themselves:\n{names}" if names else "")]
    if len(only) == 2:
        head.append(row(check, f"conformance: {count} programs, simulator as the GPU",
                        f"{count - len(bad_sim)} of {count} the same", "",
                        "FAIL" if bad_sim else "ok"))
    for program in bad_shim + [p for p in bad_sim if p not in bad_shim]:
        ways, (of_shim, of_sim) = verdicts[program]
        rows.append(row(check, f"conformance: {os.path.basename(program)}",
                        f"exit {ways['gpu native'].code}",
                        "; ".join(w for w, p in (("shim differs", of_shim),
                                                 ("simulator differs", of_sim)) if p),
                        "FAIL", "\n".join(of_shim + of_sim)))
    return head + rows
