#!/usr/bin/env python3
"""The rules of fences, by whole programs: each rule is kept, and breaking it is noticed.

The programs are conformance programs, which know nothing of the shim. VS_TEST_FAULTY is the shim with
the faults of enum vs_pool_fault in it, which VS_TEST_FAULTS switches on; with 0 it is the shim.
VS_TEST_CONFORMANCE is their folder, VS_TEST_SEED the seed of what is random.
"""

import os
import re
import sys

import harness
from harness import expect, expect_in, run

FAULTY = os.environ["VS_TEST_FAULTY"]
PROGRAMS = os.environ["VS_TEST_CONFORMANCE"]
SEED = os.environ.get("VS_TEST_SEED", "1")
BACKINGS = ("vmm", "native")
NO_FENCES, LATE_FENCES, UNMAP_ORDERED, RECORD_IN_CAPTURE = 1, 2, 4, 8
# Where memory is corrupted on purpose the simulator's own threads race, and the sanitizer says so.
TSAN = any("tsan" in path for path in harness.FIRST)
CLEAN = "wrong words 0, failed calls 0, broken captures 0\n1 facts\n"
# Room for what is live at once, and little more; everything free is given back.
TIGHT = {
    "REUSE_MAX": str(1 << 20),
    "REUSE_CAPTURERS": "0",
    "VRAMSHIM_LIMIT": "64MiB",
    "VRAMSHIM_COUNT_CONTEXT": "off",
}


def under_shim(name, backing, fault=None, timeout=120, **env):
    """A conformance program under the shim, or under the faulty one with this fault."""
    env = {"VRAMSHIM_BACKING": backing, "VRAMSHIM_REPORT": "none", "REUSE_SEED": SEED, **env}
    if TSAN:  # which takes many times as long
        env["REUSE_ROUNDS"] = str(int(env.get("REUSE_ROUNDS", 100)) // 3)
    if fault is None:
        return run(os.path.join(PROGRAMS, name), env=env, timeout=timeout)
    env["VS_TEST_FAULTS"] = str(fault)
    return run(os.path.join(PROGRAMS, name), env=env, timeout=timeout, shim=False, after=[FAULTY])


# What is said of a cap as long as it does not hold for every kind of memory.
ABOUT_CAPS = re.compile(r"^vramshim\[\d+\]: VRAMSHIM_LIMIT: .*\n", re.MULTILINE)


def expect_said(result, text, what):
    if result.code != 0 or ABOUT_CAPS.sub("", result.err) or result.out != text:
        raise AssertionError(f"{what}: code {result.code}, stdout {result.out!r}, stderr {result.err[:3000]!r}")


def native(name, **env):
    """What the program says without the shim, which has to be fine."""
    result = run(os.path.join(PROGRAMS, name), env=env, shim=False, timeout=120)
    harness.expect_fine(result)
    return result.out


def each(what, cases):
    for backing in BACKINGS:
        for name, env in cases.items():
            what(f"{backing}, {name}", backing, env)


# ---- memory that is used again ------------------------------------------------------------------
def stress_holds():
    def one(name, backing, env):
        expect_said(under_shim("reuse_stress", backing, **env), CLEAN, name)

    each(
        one,
        {
            "as it is": {},
            "more threads, small blocks": {
                "REUSE_THREADS": "8",
                "REUSE_MAX": "65536",
                "REUSE_ROUNDS": "200",
            },
            "every free waits": {"VRAMSHIM_STRICT_FREE": "on", "REUSE_ROUNDS": "40"},
            "the pool is off": {"VRAMSHIM_POOL": "off"},
        },
    )


def stress_holds_under_pressure():
    def one(name, backing, env):
        expect_said(under_shim("reuse_stress", backing, **env), CLEAN, name)

    each(
        one,
        {
            "a tight cap": TIGHT,
            "nothing is kept": {"VRAMSHIM_TRIM_ABOVE": "0"},
            "nothing is kept for long": {"VRAMSHIM_POOL_DECAY_MS": "1"},
            "decay at once": {"VRAMSHIM_POOL_DECAY_MS": "0"},
            "a tight cap, nothing is kept": {**TIGHT, "VRAMSHIM_TRIM_ABOVE": "0"},
        },
    )


def stress_holds_with_slow_work():
    """Every op of the device takes half a millisecond more."""

    def one(name, backing, env):
        env = {"VRAMSIM_LATENCY": "500", "REUSE_ROUNDS": "40", **env}
        expect_said(under_shim("reuse_stress", backing, **env), CLEAN, name)

    each(one, {"as it is": {}, "a tight cap": TIGHT})


def stress_holds_on_old_drivers():
    """Without context events."""

    def one(name, backing, env):
        expect_said(under_shim("reuse_stress", backing, **env), CLEAN, name)

    each(one, {"12.4": {"VRAMSIM_API": "12040", "REUSE_ROUNDS": "50"}})


def the_faulty_build_is_the_shim():
    for backing in BACKINGS:
        expect_said(under_shim("reuse_stress", backing, 0), CLEAN, backing)
        expect_said(
            under_shim("reuse_stress", backing, 0, **TIGHT), CLEAN, f"{backing}, a tight cap"
        )


def not_under_tsan():
    if TSAN:
        print("skipped: the thread sanitizer reports what is done on purpose")
        sys.exit(77)


def expect_noticed(result, *words):
    if result.code == 0 and result.out == CLEAN:
        raise AssertionError(f"nobody noticed: stderr {result.err!r}")
    for word in words:
        expect_in(word, result.out + result.err, "what was noticed")


def no_fences_are_noticed():
    """By the bytes alone, and by the simulator even where the timing is kind."""
    not_under_tsan()
    for backing in BACKINGS:
        result = under_shim("reuse_stress", backing, NO_FENCES, **{"VRAMSIM_RACE": "off"})
        expect_noticed(result)
        # Memory that goes back to the driver under running work ends in a fault instead.
        if "ILLEGAL_ADDRESS" not in result.err:
            expect(result.code, 0, f"{backing}: exit code; stderr {result.err!r}")
            expect(result.out.startswith("wrong words 0,"), False, f"{backing}: {result.out!r}")
        result = under_shim("reuse_stress", backing, NO_FENCES)
        expect_noticed(result)
        if "ILLEGAL_ADDRESS" not in result.err:
            expect_noticed(result, "RACE: ")
            expect(result.code, 86, backing)


def unmapping_what_is_ordered_is_noticed():
    """With one busy stream memory is ordered, and a cap this tight has pages moved about. It takes a
    few seeds until one of those is in use."""
    not_under_tsan()
    env = {
        **TIGHT,
        "REUSE_THREADS": "1",
        "REUSE_STREAMS": "1",
        "REUSE_ROUNDS": "200",
        "REUSE_MAX": str(1 << 19),
        "VRAMSHIM_LIMIT": "12MiB",
    }
    for race, word in (("on", "gone since cuMemUnmap"), ("off", "ILLEGAL_ADDRESS")):
        noticed = 0
        for seed in range(1, 9):
            env.update(VRAMSIM_RACE=race, REUSE_SEED=str(seed))
            expect_said(under_shim("reuse_stress", "vmm", 0, **env), CLEAN, f"seed {seed}")
            noticed += word in str(vars(under_shim("reuse_stress", "vmm", UNMAP_ORDERED, **env)))
            if noticed and seed >= 3:
                break
        expect(noticed > 0, True, f"race {race}: noticed")


def recording_in_a_capture_is_noticed():
    for backing in BACKINGS:
        result = under_shim("reuse_stress", backing, RECORD_IN_CAPTURE)
        expect_noticed(result)
        expect("broken captures 0" in result.out, False, result.out)


# ---- never more than the driver -----------------------------------------------------------------
FLAGS = {"VRAMSHIM_LIMIT": "48MiB", "VRAMSHIM_COUNT_CONTEXT": "off"}


def flags_do_not_hang():
    said = native("flag_waits")

    def one(name, backing, env):
        expect_said(under_shim("flag_waits", backing, **env), said, name)

    each(
        one,
        {
            "as it is": {},
            "a tight cap": FLAGS,
            "a tight cap, nothing is kept": {**FLAGS, "VRAMSHIM_TRIM_ABOVE": "0"},
            "a tight cap, every free waits": {**FLAGS, "VRAMSHIM_STRICT_FREE": "on"},
            "a tight cap, an old driver": {**FLAGS, "VRAMSIM_API": "12040"},
        },
    )
    for backing in BACKINGS:
        expect_said(under_shim("flag_waits", backing, 0, **FLAGS), said, backing)


def late_fences_hang():
    """A watchdog ends it; the program says so."""
    for backing in BACKINGS:
        result = under_shim("flag_waits", backing, LATE_FENCES, FLAG_PATIENCE="1", **FLAGS)
        expect_in("it ended by itself: no", result.out, backing)


# ---- what the host relies on --------------------------------------------------------------------
def host_reads_after_a_free():
    said = native("host_reads")
    expect_in("all is there", said, "natively")
    for backing in BACKINGS:
        for strict in ("auto", "on", None):
            result = under_shim("host_reads", backing, VRAMSHIM_STRICT_FREE=strict)
            expect_said(result, said, f"{backing}, {strict}")


def host_reads_too_early_when_told_so():
    not_under_tsan()
    lost = native("host_reads").replace("all is there", "not there yet")
    for backing in BACKINGS:
        # The simulator would end a program whose copy meets work that it does not wait for.
        result = under_shim("host_reads", backing, VRAMSHIM_STRICT_FREE="off", VRAMSIM_RACE="off")
        expect_said(result, lost, backing)


def a_free_waits_where_it_must():
    waits = {
        "auto": {"a copy to the host", "another stream waited for"},
        "off": set(),
        "on": None,  # all
    }
    for backing in BACKINGS:
        for strict, expected in waits.items():
            result = run(
                "free_patience",
                env={
                    "VRAMSHIM_BACKING": backing,
                    "VRAMSHIM_STRICT_FREE": strict,
                    "VRAMSHIM_REPORT": "none",
                },
            )
            harness.expect_fine(result)
            said = dict(line.split(": ") for line in result.out.splitlines()[:-1])
            expect(len(said), 10, result.out)
            if expected is None:
                expected = set(said)
            waited = {name for name, how in said.items() if how == "waited"}
            expect(waited, expected, f"{backing}, {strict}")


def frees_go_wrong_but_once():
    """Two threads free one block: one of them is told no."""
    for backing in BACKINGS:
        said = under_shim("foreign_frees", backing, FOREIGN_FREES="race")
        harness.expect_fine(said)
        expect_in("atomic_load(&freed) == RACES && atomic_load(&refused) == RACES: yes", said.out, backing)


def others_submit_behind_a_free():
    """What natively waits for the free does not with the shim."""
    for backing in BACKINGS:
        said = under_shim("many_frees", backing, MANY_FREES="apart", timeout=60)
        harness.expect_fine(said)
        expect_in("!gate_passed(gate): yes", said.out, backing)


# ---- elsewhere ----------------------------------------------------------------------------------
def same_with_several_devices():
    for name in ("foreign_frees", "context_ends", "host_reads", "reuse_stress", "odd_sizes"):
        said = native(name, VRAMSIM_DEVICES="3", VRAMSIM_MEMORY="512MiB")
        for backing in BACKINGS:
            result = under_shim(name, backing, VRAMSIM_DEVICES="3", VRAMSIM_MEMORY="512MiB")
            expect_said(result, said, f"{name}, {backing}")


def same_with_what_acts_at_once():
    """Memory that goes back to the driver as soon as it can, or late, or is taken in advance."""
    names = (
        "capture_memory",
        "context_ends",
        "foreign_frees",
        "odd_sizes",
        "pointer_identity",
        "sticky",
    )
    settings = (
        {"VRAMSHIM_TRIM_ABOVE": "0"},
        {"VRAMSHIM_POOL_DECAY_MS": "0"},
        {"VRAMSHIM_POOL_DECAY_MS": "5"},
        {"VRAMSHIM_POOL_SIZE": "256MiB"},
        {"VRAMSHIM_STRICT_FREE": "on"},
        {"VRAMSHIM_POOL": "off"},
    )
    for name in names:
        said = native(name)
        for env in settings:
            for backing in BACKINGS if env is settings[0] else BACKINGS[:1]:
                expect_said(under_shim(name, backing, **env), said, f"{name}, {backing}, {env}")


def same_on_old_drivers():
    """Without context events: what a free cannot order, it waits for."""
    for name in ("capture_errors", "capture", "flag_waits", "host_reads", "odd_sizes", "pointer_identity"):
        said = native(name, VRAMSIM_API="12040")
        for backing in BACKINGS:
            result = under_shim(name, backing, VRAMSIM_API="12040")
            expect_said(result, said, f"{name}, {backing}")


TESTS = {
    f.__name__: f
    for f in (
        stress_holds,
        stress_holds_under_pressure,
        stress_holds_with_slow_work,
        stress_holds_on_old_drivers,
        the_faulty_build_is_the_shim,
        no_fences_are_noticed,
        unmapping_what_is_ordered_is_noticed,
        recording_in_a_capture_is_noticed,
        flags_do_not_hang,
        late_fences_hang,
        host_reads_after_a_free,
        host_reads_too_early_when_told_so,
        a_free_waits_where_it_must,
        frees_go_wrong_but_once,
        others_submit_behind_a_free,
        same_with_several_devices,
        same_with_what_acts_at_once,
        same_on_old_drivers,
    )
}

if __name__ == "__main__":
    harness.main(TESTS)
