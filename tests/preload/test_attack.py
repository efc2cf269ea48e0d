"""Attacks: programs and surroundings that are hard on a preloaded library (attack.c, attack_lib.c).

What a program does must be what it does without the shim; what the report says must be true.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import (
    BIN, SANITIZED, SHIM, client, environment, expect, expect_device, expect_fine, expect_in, main,
    program, run, wait_for,
)

TESTS = {}
START = ("init", "device:0")
SOME = (*START, "alloc:1000000", "alloc:2000000", "free:0")


def test(function):
    TESTS[function.__name__] = function
    return function


def attack(mode, *arguments, **kwargs):
    return run("attack", mode, *arguments, **kwargs)


def life(mode, *arguments, **kwargs):
    return run("attack-life", mode, *arguments, **kwargs)


def library(name):
    return os.path.join(BIN, f"libattack_{name}.so")


def expect_as_without(program_name, *argv, **kwargs):
    """Same output and status with the shim as without. Returns the run with the shim."""
    native = run(program_name, *argv, shim=False, **kwargs)
    with_shim = run(program_name, *argv, **kwargs)
    expect((with_shim.code, with_shim.out), (native.code, native.out), f"{argv} with and without")
    return with_shim


# Look-ups and libraries


@test
def a_stub_that_the_program_links():
    result = expect_as_without("attack-stub", "stub_linked", "-")
    expect_in("stub 0 0 0", result.out)
    expect_device(result.report(), live=1000)


@test
def a_stub_that_the_program_opens():
    result = expect_as_without("attack-apart", "stub_opened", library("stub"))
    expect_in("stub 0\n", result.out)
    expect_device(result.report(), live=1000)


@test
def a_constructor_waits_for_a_thread():
    result = expect_as_without("attack-apart", "open_a_library", library("constructor"))
    expect_in("started 1", result.out)
    expect_device(result.report(), live=64)


@test
def the_shim_opened_and_closed():
    if SANITIZED:
        return  # the shim of such a build cannot be opened later
    result = run("attack-apart", "open_and_close_a_library", SHIM, shim=False)
    expect((result.code, result.out), (0, "ok\n"))


@test
def first_look_up_in_passing():
    expect_fine(expect_as_without("attack-apart", "first_look_up_in_passing", "libresolv.so.2"))


@test
def look_ups_while_libraries_come_and_go():
    result = expect_as_without("attack", "look_up_meanwhile")
    expect_fine(result)
    expect_device(result.report(), live=64)


@test
def dlerror_is_kept():
    expect_as_without("attack", "dlerror_is_kept")


@test
def cuda_in_the_constructor_of_a_preload():
    for side in ("before", "after"):
        result = run("/bin/true", **{side: [library("early")]})
        expect_fine(result)
        expect(result.out, "early allocation\n")
        expect_device(result.report(), live=4242)


def tool(name):
    return os.path.join(BIN, f"libtool_{name}.so")


@test
def names_that_a_tool_before_us_does_not_know():
    """The tool has found the real dlsym by its version, and passes on what it does not hook."""
    result = client(*START, "alloc:1000", "managed:2000", "async:4000", before=[tool("dlsym")])
    expect_fine(result)
    expect_device(result.report(), live=7000, count=3)


@test
def rtld_default_finds_the_first():
    """A preload before us, or the program itself, comes before us in the global scope."""
    result = run("attack", "through_rtld_default", before=[tool("plain")])
    expect_fine(result)
    expect_in("tool plain: 1 allocs", result.out)
    expect_device(result.report(), live=400)
    result = expect_as_without("attack-own", "own_entry")
    expect_in("same 1\n", result.out)


@test
def preloaded_twice():
    result = client(*SOME, after=[SHIM])
    expect_fine(result)
    expect_device(result.report(), live=2000000, allocs=2, frees=1)


@test
def a_copy_is_preloaded_too():
    if SANITIZED:
        return
    folder = tempfile.mkdtemp(prefix="vs-test-")
    copy = os.path.join(folder, "libcopy.so")
    shutil.copy(SHIM, copy)
    # With the pool, the copy behind us is asked for what the pool takes, and says so.
    result = client(*SOME, after=[copy],
                    env={"VRAMSHIM_REPORT": "{}/r.%p.json", "VRAMSHIM_POOL": "off"})
    expect_fine(result)
    for report in result.reports():
        expect_device(report, live=2000000, allocs=2, frees=1)
    expect([n for n in result.files() if n.startswith(".")], [])


# Life of processes


@test
def odd_ends():
    for mode, code, live in (("exit_in_thread", 21, 64), ("main_thread_leaves", 0, 100),
                             ("main_thread_leaves_alone", 0, 100),
                             ("main_thread_leaves_by_thrd_exit", 0, 100),
                             ("main_thread_leaves_first", 0, 100),
                             ("exit_in_atexit", 22, 64), ("fork_in_atexit", 0, 64),
                             ("two_leave_at_once", 23, 64), ("raw_clone", 0, 100)):
        if SANITIZED and mode.startswith("main_thread_leaves"):
            continue  # ThreadSanitizer's runtime waits for the main thread for ever
        # The decay thread is there and sleeps for good by the time that the main thread leaves.
        result = expect_as_without("attack-life", mode, env={"VRAMSHIM_POOL_DECAY_MS": "80"})
        expect_fine(result, code)
        expect(result.report()["process"]["exit_code"], code, mode)
        expect_device(result.report(), live=live)
        expect(result.files(), ["report.json"])


@test
def a_daemon_leaves_nothing_lying_about():
    result = expect_as_without("attack-life", "becomes_daemon")
    expect([n for n in result.files() if n.startswith(".")], [])


@test
def forks_among_threads():
    result = life("forks_among_threads")
    expect_fine(result)
    _, allocs, frees = result.out.splitlines()[0].split()
    expect_device(result.report(), live=0, allocs=int(allocs), frees=int(frees))
    expect(result.files(), ["report.json"])


@test
def exec_fails_while_others_work():
    result = life("exec_fails_meanwhile")
    expect_fine(result)
    _, allocs, frees = result.out.splitlines()[0].split()
    expect_device(result.report(), live=0, count=0, allocs=int(allocs), frees=int(frees))


@test
def a_handler_leaves_at_a_random_moment():
    seed = int(os.environ.get("VS_TEST_SEED", "1"))
    rng = random.Random(seed)
    for _ in range(60):
        result = life("leaves_at_a_random_moment", str(rng.randrange(100, 9000)))
        expect_fine(result, 17)
        expect(result.files(), ["report.json"], f"seed {seed}")
        device = result.report()["devices"][0]
        expect(device["live"]["now_count"] <= 1, True, f"seed {seed}")


def held_by_one_with_failed_execs(env):
    """That one, and a second process under the same name; both have ended."""
    folder = tempfile.mkdtemp(prefix="vs-test-")
    argv = [program("attack-life"), "failing_execs_keep_the_name", f"{folder}/up", f"{folder}/go"]
    with subprocess.Popen(argv, env=environment(folder, env), stderr=subprocess.PIPE,
                          text=True) as first:
        wait_for(folder, "up", children=[first])
        second = client(*START, "alloc:222", folder=folder, env=env)
        open(os.path.join(folder, "go"), "w", encoding="utf-8").close()
        said = first.stderr.read()
    expect(first.returncode, 0)
    return first, said, second


@test
def failed_execs_keep_the_name():
    first, said, second = held_by_one_with_failed_execs({})
    expect(said, "")
    expect_fine(second)
    expect_device(second.report(), live=111)
    expect_device(second.report(f"report.json.{second.pid}"), live=222)


@test
def failed_execs_say_nothing():
    _, said, _ = held_by_one_with_failed_execs({"VRAMSHIM_REPORT": None})
    expect(said.count("== vramshim"), 1)


@test
def killed_under_a_strict_mask():
    """What a killed process leaves does not take the name for good, also where nobody may read it."""
    def unprivileged():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        os.umask(0o777)

    folder = tempfile.mkdtemp(prefix="vs-test-")
    os.chmod(folder, 0o777)
    try:
        killed = client(*START, "alloc:1", "kill9", folder=folder, preexec_fn=unprivileged)
    except PermissionError:
        return  # the build is not for everybody to read
    expect(killed.code, -signal.SIGKILL)
    result = client(*START, "alloc:2", folder=folder, preexec_fn=unprivileged)
    expect_fine(result)
    expect(result.files(), ["report.json"])


@test
def killed_at_random():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    seed = int(os.environ.get("VS_TEST_SEED", "1"))
    rng = random.Random(seed)
    for _ in range(25):
        argv = [program("client"), *START, "alloc:77", "threads:4x300"]
        with subprocess.Popen(argv, env=environment(folder)) as child:
            time.sleep(rng.random() * 0.04 * (20 if SANITIZED else 1))
            child.kill()
        for name in os.listdir(folder):
            if not name.startswith("."):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    json.load(f)
    last = client(*START, "alloc:555", folder=folder)
    expect_fine(last)
    expect_device(last.report(), live=555)
    expect(last.files(), ["report.json"], f"seed {seed}")


@test
def a_small_signal_stack():
    if SANITIZED:
        return  # instrumented code takes more
    least = 0
    for size in range(4096, 20480, 1024):
        if life("small_signal_stack", str(size), shim=False).code == 3:
            least = size
            break
    result = life("small_signal_stack", str(least))
    expect(result.code, 3, f"signal stack of {least} bytes")


# Counting


@test
def books_of_its_own():
    for _ in range(2):
        result = attack("tally")
        expect_fine(result)
        _, live, count, allocs, frees = result.out.splitlines()[0].split()
        expect_device(result.report(), live=int(live), count=int(count), allocs=int(allocs),
                      frees=int(frees))


@test
def contexts_come_and_go():
    result = attack("context_churn")
    expect_fine(result)
    expect_device(result.report(), live=0, count=0, allocs=2400, frees=2400)
    expect(result.report()["leaks"], [])
    result = attack("context_churn_leak")
    expect_device(result.report(), live=0, count=0, allocs=2400, frees=0)
    expect(sum(leak["count"] for leak in result.report()["leaks"]), 2400)


@test
def two_free_the_same():
    for after in ([], [library("slow_free")]):
        result = attack("double_free_race", after=after)
        expect_in("freed 3000\n", result.out)
        expect_device(result.report(), live=0, count=0, allocs=3000, frees=3000)


@test
def every_device_has_its_own():
    result = attack("devices", env={"VRAMSIM_DEVICES": "3"})
    expect_fine(result)
    for index, live in enumerate((150, 3200, 30000)):
        expect_device(result.report(), index, live=live)


@test
def a_failure_belongs_to_the_streams_device():
    result = attack("failure_elsewhere", env={"VRAMSIM_DEVICES": "2"})
    expect_fine(result)
    expect_device(result.report(), 0, failed=0)
    expect_device(result.report(), 1, failed=1)
    expect(result.report()["ooms"][0]["device"], 1)
    expect(result.report()["ooms"][0]["driver_free_bytes"], None, "not another device's")


@test
def nonsense_gets_the_drivers_answer():
    result = expect_as_without("attack", "null_pointers")
    expect_device(result.report(), live=0, count=0)


FAULTS = ("cuMemAlloc_v2:2:2,cuMemAllocPitch_v2:1:1,cuMemAllocManaged:2:1,cuMemAllocAsync:2:*,"
          "cuMemAllocFromPoolAsync:2:1,cuDevicePrimaryCtxRetain:2:2,cuStreamEndCapture:999:1,"
          "cuMemFree_v2:700:1,cuMemFreeAsync:700:1,cuCtxDestroy_v2:1:1,"
          "cuDevicePrimaryCtxReset_v2:1:1,cuDevicePrimaryCtxRelease_v2:1:1,cuStreamDestroy_v2:1:1,"
          "cuStreamBeginCapture_v2:1:1")


@test
def failures_write_nothing():
    # The pool writes 0 when memory is out, as a GPU's driver does; a fault of the simulator does not.
    result = expect_as_without("attack", "faults",
                               env={"VRAMSIM_FAULT": FAULTS, "VRAMSHIM_POOL": "off"})
    expect_fine(result)
    expect_device(result.report(), live=64, count=1, allocs=1, frees=0)


@test
def captured_calls_are_not_counted():
    result = attack("capture")
    expect_fine(result)
    expect_device(result.report(), live=777 + 333 + 111 + 5, count=4, frees=0)


# Surroundings


@test
def a_full_stderr_does_not_hold_up_the_end():
    for how in ("nonblocking", "blocking"):
        result = life("full_stderr", how, env={"VRAMSHIM_REPORT": None})
        expect((result.code, result.out), (0, "ok\n"), how)


@test
def a_dead_stderr():
    for bad in (None, "maybe"):
        result = life("dead_stderr", env={"VRAMSHIM_REPORT": None, "VRAMSHIM_POOL": bad})
        expect((result.code, result.out), (0, "ok\n"))


def limited(which, value):
    return lambda: resource.setrlimit(which, (value, value))


@test
def few_descriptors():
    for count in range(4, 17):
        native = client(*SOME, shim=False, preexec_fn=limited(resource.RLIMIT_NOFILE, count))
        result = client(*SOME, preexec_fn=limited(resource.RLIMIT_NOFILE, count))
        expect((result.code, result.out), (native.code, native.out), f"{count} descriptors")
        if result.code == 0 and not result.err and "no driver" not in result.out:
            expect_device(result.report(), live=2000000)


@test
def files_that_may_not_grow():
    for bytes_allowed in (0, 100, 1000):
        if client(*SOME, shim=False, preexec_fn=limited(resource.RLIMIT_FSIZE, bytes_allowed)).code:
            continue  # some sanitizers' runtimes cannot live with it
        result = client(*SOME, preexec_fn=limited(resource.RLIMIT_FSIZE, bytes_allowed))
        expect(result.code, 0)
        expect(result.files(), [], f"{bytes_allowed} bytes: nothing torn, nothing left")
        expect_in("2000000", result.err.replace(",", ""))


@test
def the_folder_goes_away():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    gone = os.path.join(folder, "gone")
    os.mkdir(gone)
    argv = [program("client"), *START, "alloc:111", f"touch:{folder}/up", f"wait:{folder}/go"]
    env = environment(folder, {"VRAMSHIM_REPORT": gone + "/r.json"})
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as child:
        wait_for(folder, "up")
        shutil.rmtree(gone)
        open(os.path.join(folder, "go"), "w", encoding="utf-8").close()
        err = child.stderr.read()
    expect(child.returncode, 0)
    expect_in("gone/r.json", err)
    expect_in("111 B", err)


@test
def odd_targets():
    # A folder: said, and the report goes to stderr.
    folder = tempfile.mkdtemp(prefix="vs-test-")
    os.mkdir(os.path.join(folder, "report.json"))
    result = client(*SOME, folder=folder)
    expect(result.code, 0)
    expect_in("it is a folder", result.err)
    # Pipes, devices: are not replaced by files.
    for make, kind in ((lambda p: os.mkfifo(p), "fifo"),
                       (lambda p: os.symlink("/dev/null", p), "link to a device"),
                       (lambda p: os.symlink("/dev/full", p), "link to a full device")):
        folder = tempfile.mkdtemp(prefix="vs-test-")
        path = os.path.join(folder, "report.json")
        make(path)
        before = os.lstat(path).st_mode
        result = client(*SOME, folder=folder)
        expect(result.code, 0)
        expect(os.lstat(path).st_mode, before, f"a {kind} stays what it is")


@test
def a_link_to_a_file_is_followed():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    elsewhere = tempfile.mkdtemp(prefix="vs-test-")
    os.symlink(os.path.join(elsewhere, "r.json"), os.path.join(folder, "report.json"))
    result = client(*SOME, folder=folder)
    expect_fine(result)
    expect(os.path.islink(os.path.join(folder, "report.json")), True, "the link is still one")
    expect_device(result.report(), live=2000000)


@test
def long_names():
    for length in (100, 200, 230, 240, 248, 255):
        name = "n" * (length - 5) + ".json"
        result = client(*SOME, env={"VRAMSHIM_REPORT": "{}/" + name})
        expect_fine(result)
        expect(result.files(), [name])
    result = client(*SOME, env={"VRAMSHIM_REPORT": "{}/" + "n" * 251 + ".json"})
    expect(result.code, 0)
    expect_in("2000000", result.err.replace(",", ""))
    result = client(*SOME, env={"VRAMSHIM_REPORT": "/tmp" + "/a" * 3000 + ".json"})
    expect(result.code, 0)
    expect_in("VRAMSHIM_REPORT", result.err)


@test
def hostile_names_of_programs():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    for name in (b"new\nline", b"not\xff\xfeutf8", b"a,b", b"%p%e%", b"..x", b"tab\t\"quote\\",
                 b"\x1b[31mred", b"n" * 240):
        path = os.path.join(os.fsencode(folder), name)
        shutil.copy(program("client"), path)
        reports = tempfile.mkdtemp(prefix="vs-test-")
        env = environment(reports, {"VRAMSHIM_REPORT": "{}/%e.json,{}/all.txt"})
        done = subprocess.run([path, *SOME], env=env, stderr=subprocess.PIPE, check=False)
        expect(done.returncode, 0)
        files = set(os.listdir(os.fsencode(reports)))
        expect(files, {name + b".json", b"all.txt"}, f"{name!r}, said {done.stderr!r}")
        with open(os.path.join(os.fsencode(reports), name + b".json"), encoding="utf-8") as f:
            json.load(f)
        with open(os.path.join(reports, "all.txt"), encoding="utf-8") as f:
            text = f.read()
            expect("\x1b" in text, False, "no escape sequences in the text")


@test
def masks_of_modes():
    for mask in (0o777, 0o000, 0o077):
        result = client(*SOME, preexec_fn=lambda m=mask: os.umask(m))
        expect_fine(result)
        mode = os.stat(os.path.join(result.folder, "report.json")).st_mode & 0o777
        expect(mode, 0o666 & ~mask)


@test
def many_at_once_under_one_name():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    children = []
    for i in range(12):
        argv = [program("client"), *START, f"alloc:{1000 + i}", f"touch:{folder}/up{i}",
                f"wait:{folder}/go"]
        children.append(subprocess.Popen(argv, env=environment(folder)))
    wait_for(folder, *[f"up{i}" for i in range(12)])
    open(os.path.join(folder, "go"), "w", encoding="utf-8").close()
    for child in children:
        expect(child.wait(), 0)
    live = []
    for name in os.listdir(folder):
        if name.startswith("report.json"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                live.append(json.load(f)["devices"][0]["live"]["now_bytes"])
    expect(sorted(live), [1000 + i for i in range(12)])
    expect([n for n in os.listdir(folder) if n.startswith(".")], [])


def options():
    out = subprocess.run([os.path.join(os.path.dirname(SHIM), "..", "report", "cli", "vramshim"),
                          "options"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return sorted({w.strip("`|,") for w in out.split() if w.strip("`|,").startswith("VRAMSHIM_")})


@test
def garbage_in_every_option():
    for name in options():
        for value in ("", " ", ",", "=", "%", "%q{", "-1", "99999999999999999999", "0x10", "nan",
                      "\x01\x02", "on,off", "0=0", "GPU-=1", "A" * 100000, "%q{A}" * 1000 + ".json",
                      "\udcff\udcfe"):
            env = environment(tempfile.mkdtemp(prefix="vs-test-"))
            env.pop("VRAMSHIM_REPORT")
            env[name] = value
            done = subprocess.run([program("client"), "may:init"], env=env, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
            expect(done.returncode, 0, f"{name}={value[:40]!r}")
            expect(done.stdout in (b"cuInit 0\n", b"cuInit 1\n"), True, f"{name}={value[:40]!r}")
            for line in done.stderr.splitlines():
                expect(len(line) < 1100, True, f"{name}={value[:40]!r} said a line too long")


@test
def settings_change_before_cuda():
    for name in options():
        result = life("late_settings", name)
        expect(result.code, 0, name)
    result = life("no_environment")
    expect((result.code, result.out), (0, "ok\n"))


@test
def a_refused_cap_holds_without_cuinit():
    if SANITIZED:
        return  # sanitizer runtimes refuse RTLD_DEEPBIND
    plugin = os.path.join(BIN, "libplugin.so")
    for value in ("8GB", "7=1GiB"):
        result = client("deep:" + plugin, "may:device:0", "may:alloc:4096", "may:alloc:4096",
                        env={"VRAMSHIM_LIMIT": value})
        expect(result.out.count("cuMemAlloc 1\n"), 2, f"{value}: {result.out}")


@test
def nothing_but_loading_without_cuda():
    """System calls of a process that never uses CUDA, with and without the shim."""
    if SANITIZED or not shutil.which("strace"):
        return

    def calls(shim):
        folder = tempfile.mkdtemp(prefix="vs-test-")
        env = environment(folder, shim=shim)
        log = os.path.join(folder, "log")
        argv = ["strace", "-f", "-o", log, "-E", "LD_PRELOAD=" + env.pop("LD_PRELOAD", ""),
                sys.executable, "-c", "pass"]
        done = subprocess.run(argv, env=env, check=False, stderr=subprocess.DEVNULL)
        if done.returncode != 0:
            return None
        seen = {}
        with open(log, encoding="utf-8") as f:
            for line in f:
                call = line.split(None, 1)[-1].split("(")[0]
                seen[call] = seen.get(call, 0) + 1
        return seen

    without, with_shim = calls(False), calls(True)
    if without is None or with_shim is None:
        return
    more = {c: n - without.get(c, 0) for c, n in with_shim.items() if n > without.get(c, 0)}
    loading = {"openat", "read", "pread64", "mmap", "close", "newfstatat", "fstat", "mprotect",
               "munmap", "brk"}
    expect(set(more) <= loading, True, f"more calls: {more}")
    expect(sum(more.values()) <= 20, True, f"more calls: {more}")


if __name__ == "__main__":
    main(TESTS)
