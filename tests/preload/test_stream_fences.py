#!/usr/bin/env python3
"""The rules of fences for stream-ordered memory, by whole programs: kept, and breaking them is noticed.

As test_fences.py, which this borrows from; the programs are the conformance programs of
stream-ordered memory.
"""

import sys

import harness
from harness import expect, expect_in
from test_fences import (
    BACKINGS,
    CLEAN,
    NO_FENCES,
    TIGHT,
    TSAN,
    each,
    expect_noticed,
    expect_said,
    native,
    not_under_tsan,
    under_shim,
)

LITTLE = {**TIGHT, "REUSE_HUGE": "0", "REUSE_CAPTURERS": "1"}
# What is live at once in stream_deadlocks, and half of that again.
BLOCK_AND_A_HALF = {"VRAMSHIM_LIMIT": "6MiB", "VRAMSHIM_COUNT_CONTEXT": "off"}


def stress(cases):
    def one(name, backing, env):
        if TSAN:  # each round takes some ten times as long
            env = {"REUSE_ROUNDS": "20", **env, "REUSE_THREADS": "3"}
        expect_said(under_shim("stream_reuse", backing, **env), CLEAN, name)

    each(one, cases)


def stream_stress_holds():
    stress(
        {
            "as it is": {},
            "more threads, small blocks": {
                "REUSE_THREADS": "8",
                "REUSE_MAX": "65536",
                "REUSE_HUGE": "0",
            },
            "two streams each": {"REUSE_STREAMS": "2"},
            "every free waits": {"VRAMSHIM_STRICT_FREE": "on"},
            "the pool is off": {"VRAMSHIM_POOL": "off"},
        }
    )


def stream_stress_holds_under_pressure():
    stress(
        {
            "a tight cap": LITTLE,
            "nothing is kept": {"VRAMSHIM_TRIM_ABOVE": "0"},
            "nothing is kept for long": {"VRAMSHIM_POOL_DECAY_MS": "1"},
            "decay at once": {"VRAMSHIM_POOL_DECAY_MS": "0"},
            "a tight cap, nothing is kept": {**LITTLE, "VRAMSHIM_TRIM_ABOVE": "0"},
        }
    )


def stream_stress_holds_elsewhere():
    stress(
        {
            "slow work": {"VRAMSIM_LATENCY": "500", "REUSE_ROUNDS": "20"},
            "slow work, a tight cap": {"VRAMSIM_LATENCY": "500", "REUSE_ROUNDS": "20", **LITTLE},
            "an old driver": {"VRAMSIM_API": "12040"},
            "several devices": {"VRAMSIM_DEVICES": "3", "VRAMSIM_MEMORY": "512MiB"},
        }
    )


def served():
    """Whether the shim serves stream-ordered memory at all."""
    result = harness.client("init", "device:0", "async:1000000")
    harness.expect_fine(result)
    kinds = {kind["kind"]: kind["peak_bytes"] for kind in result.report()["devices"][0]["by_kind"]}
    return kinds.get("async", 0) == 0


def ignored_streams_are_noticed():
    """By the bytes alone, and by the simulator even where the timing is kind."""
    not_under_tsan()
    if not served():
        print("skipped: the driver serves stream-ordered memory")
        sys.exit(77)
    for backing in BACKINGS:
        for env in ({}, LITTLE):
            result = under_shim("stream_reuse", backing, 0, **env)
            expect_said(result, CLEAN, f"{backing}, without a fault")
            result = under_shim("stream_reuse", backing, NO_FENCES, VRAMSIM_RACE="off", **env)
            expect_noticed(result)
            result = under_shim("stream_reuse", backing, NO_FENCES, **env)
            expect_noticed(result)
            # Memory that goes back to the driver under running work ends in a fault instead.
            if "ILLEGAL_ADDRESS" not in result.err + result.out:
                expect_noticed(result, "RACE: ")
                expect(result.code, 86, backing)


def streams_that_wait_do_not_hang():
    said = native("stream_deadlocks")

    def one(name, backing, env):
        expect_said(under_shim("stream_deadlocks", backing, **env), said, name)

    each(
        one,
        {
            "as it is": {},
            "a tight cap": BLOCK_AND_A_HALF,
            "a tight cap, nothing is kept": {**BLOCK_AND_A_HALF, "VRAMSHIM_TRIM_ABOVE": "0"},
            "a tight cap, every free waits": {**BLOCK_AND_A_HALF, "VRAMSHIM_STRICT_FREE": "on"},
            "a tight cap, an old driver": {**BLOCK_AND_A_HALF, "VRAMSIM_API": "12040"},
        },
    )


def memory_that_becomes_short_later():
    """A free is as exact as the driver's also where nothing was short when it came."""
    said = native("stream_deadlocks", DEADLOCK_LATER="128")

    def one(name, backing, env):
        expect_said(under_shim("stream_deadlocks", backing, **env), said, name)

    later = {"DEADLOCK_LATER": "128", "FLAG_PATIENCE": "5"}
    cap = {"VRAMSHIM_LIMIT": "132MiB", "VRAMSHIM_COUNT_CONTEXT": "off"}
    each(one, {"plenty": later, "a cap": {**later, **cap}})


def the_same_on_several_devices():
    devices = {"VRAMSIM_DEVICES": "2", "VRAMSIM_MEMORY": "512MiB"}
    for name, env in (
        ("cross_free", {}),
        ("pool_attributes", {"POOL_MORE": "1"}),
        ("stream_destroyed", {}),
    ):
        said = native(name, **devices, **env)
        for backing in BACKINGS:
            expect_said(under_shim(name, backing, **devices, **env), said, f"{name}, {backing}")
    expect_in("a pool of another device", native("pool_attributes", POOL_MORE="1", **devices))


def the_same_with_what_acts_at_once():
    """Memory that goes back to the driver as soon as it can, or late."""
    settings = (
        {"VRAMSHIM_TRIM_ABOVE": "0"},
        {"VRAMSHIM_POOL_DECAY_MS": "0"},
        {"VRAMSHIM_POOL_DECAY_MS": "5"},
        {"VRAMSHIM_STRICT_FREE": "on"},
    )
    for name in ("cross_free", "stream_destroyed"):
        said = native(name)
        for env in settings:
            for backing in BACKINGS if env is settings[0] else BACKINGS[:1]:
                expect_said(under_shim(name, backing, **env), said, f"{name}, {backing}, {env}")


TESTS = {
    f.__name__: f
    for f in (
        stream_stress_holds,
        stream_stress_holds_under_pressure,
        stream_stress_holds_elsewhere,
        ignored_streams_are_noticed,
        streams_that_wait_do_not_hang,
        memory_that_becomes_short_later,
        the_same_on_several_devices,
        the_same_with_what_acts_at_once,
    )
}

if __name__ == "__main__":
    harness.main(TESTS)
