"""More attacks (attack2.c): places that change, ends cut short, links, slow descriptors."""

import json
import os
import random
import re
import subprocess
import tempfile

from harness import (
    BIN, SANITIZED, client, environment, expect, expect_device, expect_fine, expect_in, main,
    program, run, wait_for,
)

TESTS = {}
PATIENCE = 60 if SANITIZED else 20  # seconds for an end that should take two at most
START = ("init", "device:0")
SOME = (*START, "alloc:1000000", "alloc:2000000", "free:0")


def test(function):
    TESTS[function.__name__] = function
    return function


def attack(mode, *arguments, **kwargs):
    return run("attack2", mode, *arguments, **kwargs)


def seeded():
    seed = int(os.environ.get("VS_TEST_SEED", "1"))
    return seed, random.Random(seed)


def in_a_file(at):
    """The live bytes that a report says, and that it is one and not a link."""
    expect(os.path.islink(at), False, at)
    with open(at, encoding="utf-8") as f:
        return json.load(f)["devices"][0]["live"]["now_bytes"]


# Places


@test
def handles_that_come_back_elsewhere():
    result = attack("handles_come_back", env={"VRAMSIM_DEVICES": "2"})
    expect_fine(result)
    expect_device(result.report(), 0, live=100000, count=100, allocs=200, frees=100)
    expect_device(result.report(), 1, live=1000, count=100, allocs=200, frees=100)


@test
def more_contexts_than_are_known():
    result = attack("many_contexts", env={"VRAMSIM_MEMORY": "4GiB"})
    expect_fine(result)
    expect_device(result.report(), live=0, count=0, allocs=1257, frees=0)


@test
def a_reset_among_allocations():
    """Natively it is a race, but no figure may be beyond what the device has."""
    for _ in range(3):
        result = attack("primary_churn", "reset")
        expect_fine(result)
        device = result.report()["devices"][0]
        for gauge in [device["live"], device["used"], *device["by_kind"]]:
            expect(gauge["peak_bytes"] <= device["total_bytes"], True, f"peak of {gauge}")
            expect(gauge["now_bytes"] <= device["total_bytes"], True, f"now of {gauge}")


@test
def retained_and_released_by_many():
    result = attack("primary_churn", "release")
    expect_fine(result)
    expect_device(result.report(), live=0, count=0)
    expect(result.report()["leaks"], [])
    result = attack("primary_tidy")
    expect_fine(result)
    expect_device(result.report(), live=0, count=0, allocs=16000, frees=16000)
    expect(result.report()["leaks"], [])


@test
def a_release_that_meets_a_retain():
    slow = os.path.join(BIN, "libattack2_slow_release.so")
    result = attack("release_meets_retain", after=[slow])
    expect_fine(result)
    expect_device(result.report(), live=64, count=1, allocs=2, frees=0)


# Ends


def expect_a_report(result, code, what):
    expect_fine(result, code)
    expect(result.files(), ["report.json"], what)
    result.report()


@test
def a_handler_leaves_while_leaving():
    seed, rng = seeded()
    for _ in range(100):
        expect_a_report(attack("leaves_while_leaving", str(rng.randrange(50, 3000))), 17,
                        f"seed {seed}")


@test
def a_handler_leaves_while_a_context_goes():
    seed, rng = seeded()
    for _ in range(20):
        microseconds = str(rng.randrange(300, 20000))
        result = attack("leaves_while_a_context_goes", microseconds, timeout=PATIENCE)
        expect_a_report(result, 17, f"seed {seed}")


@test
def one_leaves_and_one_runs_a_program():
    seed, rng = seeded()
    for _ in range(60):
        result = attack("exit_against_exec", str(rng.randrange(800, 2200)))
        expect_a_report(result, 0, f"seed {seed}")


@test
def execs_that_fail_before_one_that_works():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    junk = os.path.join(folder, "junk")
    with open(junk, "w", encoding="utf-8") as f:
        f.write("junk")
    os.chmod(junk, 0o755)
    result = attack("execs_fail_then_work", junk)
    expect_fine(result)
    expect(result.files(), ["report.json"])
    expect(result.report()["process"]["end"], "exec")
    expect_device(result.report(), live=131, count=21)


@test
def daemons_of_all_kinds():
    for how in ("00", "01", "10", "11"):
        folder = tempfile.mkdtemp(prefix="vs-test-")
        result = attack("becomes_daemon_for", how, folder=folder, cwd=folder,
                        env={"VRAMSHIM_REPORT": "report.json"})
        expect_a_report(result, 0, how)
        expect_device(result.report(), live=64, count=1)


@test
def children_by_every_end():
    if SANITIZED:
        return  # ThreadSanitizer's runtime waits for the main thread for ever
    result = attack("children_end")
    expect_fine(result)
    expect_in("0 0 0 0 0 0 0 0 9 \n", result.out)
    expect_device(result.report(), live=100, count=2)
    expect(result.files(), ["report.json"])


# Links


def linked(make, *, path="report.json", folders=("elsewhere",)):
    """A run whose report's path is what make(folder) has put there."""
    folder = tempfile.mkdtemp(prefix="vs-test-")
    for name in folders:
        os.mkdir(os.path.join(folder, name))
    make(folder)
    return client(*SOME, folder=folder, env={"VRAMSHIM_REPORT": "{}/" + path})


@test
def links_of_all_kinds():
    def chain(folder):
        os.symlink("elsewhere/one", os.path.join(folder, "report.json"))
        os.symlink("../two", os.path.join(folder, "elsewhere", "one"))
        os.symlink(os.path.join(folder, "elsewhere", "three"), os.path.join(folder, "two"))

    def old(folder):
        os.symlink("elsewhere/three", os.path.join(folder, "report.json"))
        with open(os.path.join(folder, "elsewhere", "three"), "w", encoding="utf-8") as f:
            f.write("an earlier run's")

    def through_a_folder(folder):
        os.symlink("elsewhere", os.path.join(folder, "way"))
        os.symlink("way/../elsewhere/./three", os.path.join(folder, "report.json"))

    for make in (chain, old, through_a_folder):
        result = linked(make)
        expect_fine(result)
        expect(os.path.islink(os.path.join(result.folder, "report.json")), True, make.__name__)
        expect(in_a_file(os.path.join(result.folder, "elsewhere", "three")), 2000000)
        expect([n for n in os.listdir(os.path.join(result.folder, "elsewhere"))
                if n.startswith(".")], [], make.__name__)


@test
def links_that_lead_nowhere():
    for target, says in (("report.json", "symbolic links"), ("elsewhere", "it is a folder"),
                         ("elsewhere/", "it is a folder"), (".", "it is a folder"),
                         ("..", "it is a folder"), ("/", "it is a folder"),
                         ("nowhere/r.json", "no such folder"), ("nowhere/", "no such folder"),
                         ("/dev/null", "it is no regular file"),
                         ("/dev/tty", "it is no regular file"),
                         ("/proc/self/cmdline", "")):
        result = linked(lambda f, t=target: os.symlink(t, os.path.join(f, "report.json")))
        expect(result.code, 0, target)
        expect_in(says, result.err, target)
        expect_in("2000000", result.err.replace(",", ""), target)
        expect(os.readlink(os.path.join(result.folder, "report.json")), target)
        expect(result.files(), ["elsewhere", "report.json"], target)


@test
def links_of_several_processes():
    """Eight at once, each by a link of its own to one file: each has a whole report somewhere."""
    folder = tempfile.mkdtemp(prefix="vs-test-")
    there = os.path.join(folder, "there")
    os.mkdir(there)
    children = []
    for i in range(8):
        link = os.path.join(folder, f"link{i}.json")
        os.symlink("there/r.json", link)
        argv = [program("client"), *START, f"alloc:{1000 + i}", f"touch:{folder}/up{i}",
                f"wait:{folder}/go"]
        children.append(subprocess.Popen(argv, env=environment(folder, {"VRAMSHIM_REPORT": link})))
    wait_for(folder, *[f"up{i}" for i in range(8)])
    open(os.path.join(folder, "go"), "w", encoding="utf-8").close()
    for child in children:
        expect(child.wait(), 0)
    live = [in_a_file(os.path.join(there, name)) for name in os.listdir(there)]
    expect(sorted(live), [1000 + i for i in range(8)])


@test
def links_to_open_files():
    """As containers have them: the program's own output must not be taken away from it."""
    for name in ("stdout", "stderr"):
        folder = tempfile.mkdtemp(prefix="vs-test-")
        log = os.path.join(folder, "log")
        link = os.path.join(folder, "report.json")
        os.symlink("/dev/" + name, link)
        with open(log, "w", encoding="utf-8") as f:
            done = subprocess.run([program("client"), "print:hello", *SOME],
                                  env=environment(folder, {"VRAMSHIM_REPORT": link}),
                                  stdout=f if name == "stdout" else subprocess.DEVNULL,
                                  stderr=f if name == "stderr" else subprocess.DEVNULL, check=False)
            expect(done.returncode, 0)
            expect(os.fstat(f.fileno()).st_nlink, 1, f"the file that {name} goes to is still there")


# Standard error


def slow_reader(how):
    folder = tempfile.mkdtemp(prefix="vs-test-")
    result = attack("slow_reader_and_timer", folder + "/got", how, env={"VRAMSHIM_REPORT": None})
    expect((result.code, result.out), (0, "ok\n"))
    with open(folder + "/got", encoding="utf-8") as f:
        expect_in("== vramshim", f.read())


@test
def a_slow_reader():
    slow_reader("quiet")


@test
def a_slow_reader_while_a_timer_ticks():
    slow_reader("ticking")


@test
def a_terminal_with_little_room():
    for room in (1, 300, 4000):
        result = attack("narrow_terminal", str(room), env={"VRAMSHIM_REPORT": None})
        expect((result.code, result.out), (0, "ok\n"), f"room for {room}")


@test
def kinds_of_stderr():
    report = re.compile(r"== vramshim.*2000000|2,000,000", re.S)
    for how in ("2>file", "2>>file", "2>/dev/null", "2>&-", "2>&1 | cat >file"):
        folder = tempfile.mkdtemp(prefix="vs-test-")
        line = " ".join([program("client"), *SOME, how.replace("file", f"{folder}/file")])
        env = environment(folder, {"VRAMSHIM_REPORT": None})
        preload = env.pop("LD_PRELOAD")
        done = subprocess.run(["sh", "-c", f"LD_PRELOAD={preload} {line}"], env=env, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=20)
        expect(done.returncode, 0, how)
        if "file" in how:
            with open(f"{folder}/file", encoding="utf-8") as f:
                expect(len(report.findall(f.read())) > 0, True, how)


# Look-ups


@test
def a_missing_name_leaves_a_message():
    """Also the first look-up of all: dlsym finds nothing, dlerror says so."""
    result = run("attack2-message", os.path.join(BIN, "libnull_driver.so"))
    expect_fine(result)
    expect(result.out, "found 0, message 1\n")


if __name__ == "__main__":
    main(TESTS)
