"""Attacks on the pool (attack_pool.c): what programs do is what they do without it."""

from harness import expect, expect_fine, expect_in, main, run

TESTS = {}
BACKINGS = ("native", "vmm")
TIGHT = {"VRAMSHIM_COUNT_CONTEXT": "off", "VRAMSHIM_VERBOSE": "0"}


def test(function):
    TESTS[function.__name__] = function
    return function


def attack(*arguments, code=0, **env):
    result = run("attack-pool", *arguments, env={**TIGHT, **env})
    expect(result.code, code, f"{arguments} {env}: {result.out} {result.err}")
    return result


def natively(*arguments, **env):
    result = run("attack-pool", *arguments, env=env, shim=False)
    expect_fine(result)
    return result


@test
def freed_in_the_order_of_another_contexts_stream():
    """The memory is not handed out while that stream still uses it."""
    for api in ("12000", "12040", "13000"):
        for backing, wheres in (("native", ("same", "context", "device")),
                                ("vmm", ("same", "context"))):
            for where in wheres:
                result = attack("free_async_elsewhere", where, VRAMSIM_API=api,
                                VRAMSIM_DEVICES="2", VRAMSHIM_BACKING=backing,
                                VRAMSHIM_LIMIT="4MiB")
                expect_in("word 2\n", result.out, f"{api} {backing} {where}")


@test
def an_allocation_waits_for_no_later_work():
    """A flag that is set after the allocation lets the work before it go on. With the native backing
    a segment has to go back to the driver where the sizes do not fit, and that waits: not here."""
    natively("flag_between", "40", "50")
    for first, second in (("40", "50"), ("50", "40"), ("3", "3")):
        attack("flag_between", first, second, VRAMSHIM_BACKING="vmm", VRAMSHIM_LIMIT="64MiB")
    for first, second in (("3", "3"), ("1", "50")):
        attack("flag_between", first, second, VRAMSHIM_BACKING="native", VRAMSHIM_LIMIT="64MiB")


@test
def a_timer_behind_a_free():
    wanted = natively("elapsed").out
    for backing in BACKINGS:
        for api in ("12000", "13000"):
            result = attack("elapsed", VRAMSHIM_BACKING=backing, VRAMSIM_API=api)
            expect(result.out, wanted, f"{backing} {api}")
    expect_in("elapsed 600", attack("elapsed", VRAMSHIM_STRICT_FREE="off").out)


@test
def plain_memory_is_not_mapped():
    wanted = natively("not_mapped").out
    for backing in BACKINGS:
        expect(attack("not_mapped", VRAMSHIM_BACKING=backing).out, wanted, backing)


@test
def decay_among_work_that_waits():
    for backing in BACKINGS:
        attack("decay_between", "stay", VRAMSHIM_BACKING=backing, VRAMSHIM_POOL_DECAY_MS="20")


@test
def idle_memory_makes_room():
    """On a full device, and at a cap, for other contexts and other kinds of memory."""
    for backing in BACKINGS:
        for who in ("context", "async"):
            wanted = natively("others_want", who, "100", VRAMSIM_MEMORY="160MiB").out
            result = attack("others_want", who, "100", VRAMSIM_MEMORY="160MiB",
                            VRAMSHIM_BACKING=backing)
            expect(result.out, wanted, f"{backing} {who}")
        result = attack("others_want", "context", "100", VRAMSHIM_BACKING=backing,
                        VRAMSHIM_LIMIT="128MiB")
        expect(result.out, "context 0\nok\n", f"{backing}, at a cap")


@test
def a_capture_outlives_what_makes_room():
    for backing in BACKINGS:
        result = attack("room_from_a_capture", VRAMSIM_MEMORY="160MiB", VRAMSHIM_BACKING=backing)
        expect(result.out, "alloc 0\nall 2\nend 0\nok\n", backing)


@test
def captures_of_all_modes_hold():
    """Other threads allocate and free in the relaxed mode, and memory goes back meanwhile."""
    for backing in BACKINGS:
        for decay in ("0", "1", "10000"):
            result = attack("captures_meanwhile", VRAMSHIM_BACKING=backing,
                            VRAMSHIM_POOL_DECAY_MS=decay)
            expect(result.out, "broken 0\nok\n", f"{backing} {decay}")


@test
def threads_leave_nothing_behind():
    for backing in BACKINGS:
        attack("churn", "40", "6200000", VRAMSHIM_BACKING=backing, VRAMSHIM_LIMIT="8MiB")


@test
def leaving_among_threads():
    for backing in BACKINGS:
        for how in ("exit", "fork", "vfork"):
            for decay in ("1", "10000"):
                result = attack("leave_meanwhile", how, "30000", VRAMSHIM_BACKING=backing,
                                VRAMSHIM_POOL_DECAY_MS=decay)
                expect(result.out, "ok\n", f"{backing} {how} {decay}")


@test
def giants_at_a_cap():
    """Views and moved pages, with work in flight on several streams."""
    for backing, room in (("vmm", "560"), ("native", "400")):
        for seed in ("1", "2"):
            result = attack("giants", "150", room, "150", seed, VRAMSHIM_BACKING=backing,
                            VRAMSHIM_LIMIT="600MiB", VRAMSIM_MEMORY="2GiB")
            expect_in("wrong 0\n", result.out, f"{backing} {seed}")
            if backing == "vmm":
                expect_in("refused 0\n", result.out, seed)


if __name__ == "__main__":
    main(TESTS)
