"""Interposition and process life: the shim preloaded into whole programs on the simulated driver."""

import os
import subprocess
import sys
import tempfile

from harness import (
    BIN, MIB, SANITIZED, SHIM, client, environment, expect, expect_device, expect_fine, expect_in,
    main, program, run, wait_for,
)

TESTS = {}


def test(function):
    TESTS[function.__name__] = function
    return function


def plugin():
    return os.path.join(BIN, "libplugin.so")


def tool(name):
    return os.path.join(BIN, f"libtool_{name}.so")


START = ("init", "device:0")
SOME = (*START, "alloc:1000000", "alloc:2000000", "free:0")


# Ways into the driver


@test
def counts_by_dlsym():
    result = client(*SOME)
    expect_fine(result)
    report = result.report()
    expect_device(report, live=2000000, peak=3000000, count=1, allocs=2, frees=1, failed=0)
    expect(report["schema"], "vramshim.report/1")
    expect(report["process"]["end"], "exit")
    expect(report["process"]["exit_code"], 0)


@test
def counts_by_proc_address():
    result = client("proc", *SOME)
    expect_fine(result)
    expect_device(result.report(), live=2000000, peak=3000000, count=1, allocs=2, frees=1)


@test
def counts_by_direct_link():
    result = client(*SOME, direct=True)
    expect_fine(result)
    expect_device(result.report(), live=2000000, peak=3000000, count=1, allocs=2, frees=1)


@test
def counts_per_thread_twins():
    result = client("proc-per-thread", *START, "async:4000", "async:5000", "freeasync:0")
    expect_fine(result)
    expect_device(result.report(), live=5000, allocs=2, frees=1)


@test
def counts_every_kind():
    for pool in ("on", "off"):
        result = client(
            *START, "alloc:1000", "managed:2000", "async:4000", "pitch:100x10", "freeasync:2",
            env={"VRAMSHIM_POOL": pool},
        )
        expect_fine(result)
        pitch = int(result.out.split()[1])
        report = result.report()
        expect_device(report, live=3000 + 10 * pitch, count=3, allocs=4, frees=1)
        kinds = {k["kind"]: k["now_bytes"] for k in report["devices"][0]["by_kind"]}
        reserved = report["devices"][0]["reserved"]["now_bytes"]
        expect(kinds.get("plain", 0), 0 if pool == "on" else 1000 + 10 * pitch)
        expect(kinds.get("pool", 0), reserved)
        expect(reserved >= 1000 + 10 * pitch, pool == "on")
        expect(kinds["managed"], 2000)
        expect(kinds.get("async", 0), 0)


@test
def failures_count_and_leave_nothing():
    result = client(
        *START, "may:alloc:0", "may:alloc:99999999999999", "may:free:7", "alloc:512", "may:free:0",
        "may:free:0",
    )
    expect_fine(result)
    report = result.report()
    expect_device(report, live=0, count=0, allocs=1, frees=1, failed=2)
    expect(len(report["ooms"]), 1)
    expect(report["ooms"][0]["requested_bytes"], 99999999999999)


@test
def calls_from_inside_the_driver_are_its_own():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    os.symlink(os.path.join(BIN, "libnull_driver.so"), os.path.join(folder, "libcuda.so.1"))
    result = client("init", "alloc:1000", "managed:2000", "pitch:100x10",
                    env={"LD_LIBRARY_PATH": folder, "VRAMSHIM_POOL": "off"})
    expect_fine(result)
    report = result.report()
    expect_device(report, live=4000, count=3, allocs=3)
    kinds = {k["kind"]: k["now_bytes"] for k in report["devices"][0]["by_kind"]}
    expect((kinds["plain"], kinds["managed"]), (2000, 2000))


@test
def threads_count_exactly():
    result = client(*START, "threads:8x2000")
    expect_fine(result)
    expect_device(result.report(), live=0, count=0, allocs=16000, frees=16000)


@test
def a_reset_takes_memory_along():
    result = client(*START, "alloc:4096", "alloc:4096", "reset:0", "device:0",
                    "alloc:8192")
    expect_fine(result)
    report = result.report()
    expect_device(report, live=8192, peak=8192, count=1, allocs=3, frees=0)
    leaked = sum(leak["count"] for leak in report["leaks"])
    expect(leaked, 3, "what the program never freed stays a leak")


@test
def the_last_release_takes_memory_along():
    result = client(*START, "alloc:4096", "release:0", "device:0", "device:0", "alloc:100",
                    "release:0")
    expect_fine(result)
    expect_device(result.report(), live=100, count=1, allocs=2)


@test
def lookups_are_as_without():
    library = os.path.join(BIN, "liblookups_lib.so")
    for shim in (False, True):
        result = run("lookups", library, shim=shim)
        expect(result.out, "ok\n", f"shim {shim}")
        expect(result.code, 0)


# Other preloads


def tool_counts(result):
    """name -> (allocs, frees) as the tool printed at its end."""
    seen = {}
    for line in result.out.splitlines():
        if line.startswith("tool "):
            _, name, allocs, _, frees, _ = line.replace(":", "").split()
            seen[name] = (int(allocs), int(frees))
    return seen


def chain(direct, before=(), after=()):
    # With the pool, a tool behind us sees what the pool takes.
    result = client(*SOME, direct=direct, before=before, after=after,
                    env={"LD_BIND_NOW": None, "VRAMSHIM_POOL": "off"})
    expect_fine(result)
    expect_device(result.report(), live=2000000, peak=3000000, count=1, allocs=2, frees=1)
    return tool_counts(result)


@test
def tool_before_us():
    expect(chain(True, before=[tool("plain")]), {"plain": (2, 1)})
    expect(chain(False, before=[tool("plain")]), {})


@test
def tool_behind_us():
    expect(chain(True, after=[tool("plain")]), {"plain": (2, 1)})
    chain(False, after=[tool("plain")])


@test
def tool_with_its_own_dlsym_before_us():
    expect(chain(True, before=[tool("dlsym")]), {"dlsym": (2, 1)})
    expect(chain(False, before=[tool("dlsym")]), {"dlsym": (2, 1)})


@test
def tool_with_its_own_dlsym_behind_us():
    expect(chain(True, after=[tool("dlsym")]), {"dlsym": (2, 1)})
    expect(chain(False, after=[tool("dlsym")]), {"dlsym": (2, 1)})


@test
def tools_on_both_sides():
    expect(chain(True, before=[tool("dlsym")], after=[tool("plain")]),
           {"dlsym": (2, 1), "plain": (2, 1)})
    chain(False, before=[tool("plain")], after=[tool("dlsym")])


# Ways round us


def notes(report):
    return {note["code"]: note["text"] for note in report["notes"]}


@test
def a_plugin_is_counted():
    result = client(*START, "plugin:" + plugin())
    expect_fine(result)
    expect_device(result.report(), live=12345, allocs=1)
    expect(notes(result.report()), {})


@test
def deepbind_is_said():
    if SANITIZED:
        return  # sanitizer runtimes refuse RTLD_DEEPBIND
    result = client(*START, "deep:" + plugin())
    expect_fine(result)
    expect_device(result.report(), live=0, allocs=0)
    expect_in("libplugin.so", notes(result.report())["deepbind"])


@test
def dlmopen_is_said():
    if SANITIZED:
        return  # a second copy of a sanitizer's runtime does not start
    result = client(*START, "may:apart:" + plugin())
    expect(result.code, 0)
    expect_in("second-driver", notes(result.report()))


# Ends of processes


def ends(how, code, end, report_code=None):
    result = client(*SOME, how)
    expect_fine(result, code)
    process = result.report()["process"]
    expect(process["end"], end)
    expect(process["exit_code"], report_code if report_code is not None else code)
    expect_device(result.report(), live=2000000)


@test
def ends_by_exit():
    ends("exit:3", 3, "exit")


@test
def ends_by_underscore_exit():
    ends("_exit:4", 4, "_exit")
    ends("_Exit:5", 5, "_exit")


@test
def ends_by_quick_exit():
    result = client(*SOME, "quick_exit:6")
    expect_fine(result, 6)
    expect(result.report()["process"]["end"], "quick_exit")


@test
def ends_by_exit_in_a_signal_handler():
    ends("term", 15, "_exit")


@test
def destructors_and_atexit_come_first():
    for how in ("destructor", "atexit"):
        result = client(*SOME, how)
        expect_fine(result)
        expect_device(result.report(), live=0, count=0)
        expect(result.report()["leaks"], [])


@test
def threads_at_exit_do_not_hang():
    for how in ("exit:0", "_exit:0", "quick_exit:0"):
        result = client(*SOME, "daemon", "sleep:20", how)
        expect(result.code, 0)
        expect(result.report()["process"]["end"], how.split(":")[0])


@test
def exec_is_an_end():
    result = client(*SOME, "exec", "/bin/echo", "hello")
    expect_fine(result)
    expect(result.out, "hello\n")
    expect(result.report()["process"]["end"], "exec")
    expect(result.report()["process"]["exit_code"], None)
    result = client(*SOME, "execl", "/bin/echo", "hi")
    expect(result.out, "hi\n")
    expect(result.report()["process"]["end"], "exec")


@test
def exec_that_fails_is_none():
    result = client(*SOME, "badexec", "free:1")
    expect_fine(result)
    expect_in("No such file", result.out)
    expect(result.report()["process"]["end"], "exit")
    expect_device(result.report(), live=0, frees=2)


@test
def vfork_children_leave_no_trace():
    result = client(*SOME, "vfork", "system", "free:1")
    expect_fine(result)
    expect(result.out, "vfork 127\nvfork 0\nsystem 0\n")
    expect(result.files(), ["report.json"])
    expect_device(result.report(), live=0, frees=2)


@test
def fork_before_init():
    result = client("fork", *SOME, "exit:7")
    expect_fine(result)
    expect_in("child 7", result.out)
    expect(result.files(), ["report.json"])
    expect_device(result.report(), live=2000000)
    expect(result.report()["process"]["pid"] != result.pid, True)


@test
def fork_after_init():
    result = client(*SOME, "forkexit:8", "free:1")
    expect_fine(result)
    expect_in("child 8", result.out)
    expect(result.files(), ["report.json"])
    expect(result.report()["process"]["pid"], result.pid)
    expect_device(result.report(), live=0)


@test
def fork_after_init_child_uses_cuda():
    result = client(*SOME, "fork", "may:init", "may:alloc:512", "may:free:1", "exit:9")
    expect_fine(result)
    expect_in("cuInit 3\n", result.out, "the driver's own answer")
    expect_in("child 9", result.out)
    expect(result.files(), ["report.json"])
    expect(result.report()["process"]["pid"], result.pid)
    expect_device(result.report(), live=2000000, count=1)


# Where reports go


@test
def stderr_by_default():
    result = client(*SOME, env={"VRAMSHIM_REPORT": None})
    expect(result.code, 0)
    expect_in("vramshim", result.err)
    expect_in("2000000", result.err.replace(",", ""))


@test
def stderr_that_became_something_else():
    for step in ("file2:{}/data", "close2"):
        result = client(*SOME, step, env={"VRAMSHIM_REPORT": None})
        expect_fine(result)
        if step != "close2":
            expect(os.path.getsize(os.path.join(result.folder, "data")), 0)


@test
def none_means_none():
    result = client(*SOME, env={"VRAMSHIM_REPORT": "none"})
    expect_fine(result)
    expect(result.files(), [])


@test
def text_and_json_at_once():
    result = client(*SOME, env={"VRAMSHIM_REPORT": "{}/a.txt,{}/b.json"})
    expect_fine(result)
    expect(result.files(), ["a.txt", "b.json"])


@test
def an_unwritable_path_falls_back():
    result = client(*SOME, env={"VRAMSHIM_REPORT": "/proc/no/where/report.json"})
    expect(result.code, 0)
    expect_in("/proc/no/where", result.err)
    expect_in("2000000", result.err.replace(",", ""))


@test
def a_taken_path_gets_the_pid():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    argv = [program("client"), *START, "alloc:111", f"touch:{folder}/up", f"wait:{folder}/go"]
    with subprocess.Popen(argv, env=environment(folder)) as first:
        wait_for(folder, "up", children=[first])
        second = client(*START, "alloc:222", folder=folder)
        expect_fine(second)
        open(os.path.join(folder, "go"), "w", encoding="utf-8").close()
    expect(first.returncode, 0)
    expect(sorted(set(second.files()) - {"up", "go"}),
           ["report.json", f"report.json.{second.pid}"])
    expect_device(second.report(), live=111)
    expect_device(second.report(f"report.json.{second.pid}"), live=222)
    third = client(*START, "alloc:333", folder=folder)
    expect_device(third.report(), live=333)


@test
def descriptors_closed_or_reused():
    for step in ("closeall", "reuse"):
        result = client(*SOME, "closeall", step)
        expect(result.code, 0)
        expect_device(result.report(), live=2000000)
        expect(result.files(), ["report.json"])


@test
def a_changed_folder_does_not_move_the_report():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    result = client(*SOME, "chdir:/", folder=folder, cwd=folder,
                    env={"VRAMSHIM_REPORT": "relative.json"})
    expect_fine(result)
    expect(result.files(), ["relative.json"])


# Bad input


@test
def a_bad_cap_refuses_cuda():
    for name, value in (("VRAMSHIM_LIMIT", "8GB"), ("VRAMSHIM_LIMIT", "0"),
                        ("VRAMSHIM_FRACTION", "1.5"), ("VRAMSHIM_LIMIT", "7=1GiB"),
                        ("VRAMSHIM_LIMIT", "GPU-ffffffff=1GiB")):
        result = client("may:init", "may:init", "may:device:0", env={name: value})
        expect_in("cuInit 1\ncuInit 1\n", result.out, f"{name}={value}")
        expect(result.err.count("\n"), 1, "one clear line: " + result.err)
        expect_in(name, result.err)
        expect_in(value, result.err)
        expect(result.files(), [])


@test
def no_memory_after_a_refused_cap():
    result = client("may:init", "may:device:0", "may:alloc:4096", "may:async:4096",
                    env={"VRAMSHIM_LIMIT": "7=1GiB"})
    expect_in("cuMemAlloc 1\n", result.out)
    expect_in("cuMemAllocAsync 1\n", result.out)


@test
def other_bad_options_warn_once():
    for name, value in (("VRAMSHIM_POOL", "maybe"), ("VRAMSHIM_STACK_MIN", "64KB"),
                        ("VRAMSHIM_REPORT", "report.html"), ("VRAMSHIM_LIMITT", "8GiB"),
                        ("VRAMSHIM_POOL_DECAY_MS", "soon")):
        result = client(*START, "init", env={name: value})
        expect(result.code, 0)
        lines = [line for line in result.err.splitlines() if name in line]
        expect(len(lines), 1, result.err)


@test
def no_driver_means_no_report():
    result = client(*SOME, env={"LD_LIBRARY_PATH": BIN})
    expect_fine(result)
    expect(result.out, "no driver\n")
    expect(result.files(), [])


@test
def no_gpu_means_no_report():
    result = client("may:init", env={"VRAMSIM_DEVICES": "0"})
    expect_fine(result)
    expect(result.out, "cuInit 100\n")
    expect(result.files(), [])


@test
def old_drivers_work():
    for version in ("12040", "11020", "10020"):  # no context events; no cuGetProcAddress; no pools
        result = client(*SOME, env={"VRAMSIM_API": version})
        expect_fine(result)
        expect_device(result.report(), live=2000000)
        expect(result.report()["devices"][0]["driver_version"], int(version))


@test
def options_without_effect_say_so():
    result = client(*START, "init", env={"VRAMSHIM_POOL": "off", "VRAMSHIM_VERBOSE": "1"})
    expect(result.code, 0)
    expect(len([li for li in result.err.splitlines() if "VRAMSHIM_POOL" in li]), 1, result.err)
    quiet = client(*START, env={"VRAMSHIM_POOL": "off"})
    expect_fine(quiet)


@test
def a_cap_that_does_not_hold_yet_says_so():
    result = client(*START, env={"VRAMSHIM_LIMIT": "64MiB"})
    expect(result.code, 0)
    expect_in("other kinds of device memory are NOT limited", result.err)
    expect_in("cap-pool-only", [note["code"] for note in result.report()["notes"]])
    result = client(*START, env={"VRAMSHIM_LIMIT": "64MiB", "VRAMSHIM_POOL": "off"})
    expect(result.code, 0)
    expect_in("memory is NOT limited", result.err)
    expect_in("cap-not-enforced", [note["code"] for note in result.report()["notes"]])


@test
def a_failing_init_is_the_drivers_own():
    result = client("may:init", env={"VRAMSIM_FAULT": "cuInit:999:1"})
    expect_fine(result)
    expect(result.out, "cuInit 999\n")
    expect(result.files(), [])


# Good citizen


@test
def without_cuda_nothing_happens():
    for argv in (["/bin/true"], ["/bin/sh", "-c", ":"], ["/usr/bin/env"],
                 [sys.executable, "-c", "pass"]):
        result = run(*argv, env={"VRAMSHIM_REPORT": None, "VRAMSHIM_LIMIT": "nonsense",
                                 "TMPDIR": "{}", "VRAMSHIM_DIR": "{}/dir"})
        expect_fine(result)
        expect(result.files(), [])
    threads = "import os; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))"
    bare = run(sys.executable, "-c", threads, shim=False)
    ours = run(sys.executable, "-c", threads)
    expect(ours.out, bare.out, "threads and descriptors")


PYTHON_CUDA = """
import ctypes, os, sys, multiprocessing, subprocess
def use(size):
    cuda = ctypes.CDLL("libcuda.so.1")
    def check(result):
        if result: raise SystemExit(result)
    check(cuda.cuInit(0))
    context, device, p = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)))
"""


@test
def python_multiprocessing():
    for method in ("fork", "spawn", "forkserver"):
        folder = tempfile.mkdtemp(prefix="vs-test-")
        script = os.path.join(folder, "job.py")
        with open(script, "w", encoding="utf-8") as f:
            f.write(PYTHON_CUDA + f"""
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    children = [context.Process(target=use, args=(1000 + i,)) for i in range(3)]
    for c in children: c.start()
    for c in children: c.join()
    assert [c.exitcode for c in children] == [0, 0, 0]
    use(5000)
""")
        reports = tempfile.mkdtemp(prefix="vs-test-")
        result = run(sys.executable, script, folder=reports,
                     env={"VRAMSHIM_REPORT": "{}/r.%p.json"})
        expect_fine(result)
        live = sorted(r["devices"][0]["live"]["now_bytes"] for r in result.reports())
        expect(live, [1000, 1001, 1002, 5000], method)


@test
def python_os_exit_and_subprocess():
    result = run(sys.executable, "-c", PYTHON_CUDA + """
use(777)
subprocess.run(["true"], check=True)
subprocess.run([sys.executable, "-c", "pass"], check=True)
os._exit(5)
""")
    expect_fine(result, 5)
    expect(result.files(), ["report.json"])
    expect(result.report()["process"]["end"], "_exit")
    expect_device(result.report(), live=777)


# The library itself


def tool_output(*argv):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


@test
def exports_are_the_table():
    symbols = [line.split() for line in
               tool_output("nm", "-D", "--defined-only", SHIM).splitlines()]
    names = {fields[-1] for fields in symbols}
    for name in names:
        expect("@" in name, False, "a version node disables the hooks")
    allowed = {"dlsym", "dlvsym", "_exit", "_Exit", "execv", "execve", "execvp", "execvpe",
               "execl", "execle", "execlp", "execveat", "fexecve", "daemon", "pthread_exit",
               "thrd_exit"}
    ours = {name for name in names if not name.startswith(("cu", "vramshim_"))}
    expect(ours, allowed)
    expect_in("cuMemAlloc_v2", names)


@test
def needs_libc_only():
    if SANITIZED:
        return
    dynamic = tool_output("readelf", "-dW", SHIM)
    needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
    expect(needed <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, True, needed)
    versions = set()
    for line in tool_output("readelf", "-VW", SHIM).splitlines():
        for word in line.split():
            if word.startswith("GLIBC_2."):
                versions.add(tuple(int(part) for part in word[6:].split(".")))
    expect(max(versions) <= (2, 17), True, f"newest glibc version needed: {max(versions)}")


if __name__ == "__main__":
    main(TESTS)
