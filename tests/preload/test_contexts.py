"""Contexts that come and go (attack_contexts.c): no handle of a context, a stream or an event outlives
it in the shim, and nobody gets memory of one that is gone. The simulator tells of each call with a stale
handle; the programs make none."""

from harness import SANITIZED, expect, expect_fine, main, run

TESTS = {}
BACKINGS = ("native", "vmm")
ROUNDS = 8 if SANITIZED else 20


def test(function):
    TESTS[function.__name__] = function
    return function


def contexts(*arguments, shim=True, **env):
    """Handles and addresses that do not come back show every stale one; those that do, what becomes
    of it."""
    out = {}
    for reuse in ("off", "on"):
        result = run("attack-contexts", *arguments, shim=shim, timeout=120,
                     env={"VRAMSIM_POISON": "off", "VRAMSIM_REUSE": reuse, **env})
        expect_fine(result)
        out[reuse] = result
    return out


@test
def contexts_give_memory_back():
    """Each gives memory back on a stream of its own."""
    for backing in BACKINGS:
        for when in ({"VRAMSHIM_TRIM_ABOVE": "0"}, {"VRAMSHIM_POOL_DECAY_MS": "1"}):
            contexts("come_and_go", "3", str(ROUNDS), VRAMSHIM_BACKING=backing, **when)


@test
def destroyed_while_current():
    """Another thread destroys the context, and the driver may take it for alive: whatever is asked
    for is answered as it is natively, and the next context with that handle has a pool."""
    for how in ("v1", "v2", "v3", "v4"):
        wanted = contexts("destroyed_elsewhere", how, shim=False)
        for backing in BACKINGS if how == "v2" else BACKINGS[:1]:
            for ghosts in ("off", "on"):
                said = contexts("destroyed_elsewhere", how, VRAMSIM_GHOSTS=ghosts,
                                VRAMSHIM_BACKING=backing, VRAMSHIM_POOL_DECAY_MS="1")
                for reuse, result in said.items():
                    where = f"{how} {backing} ghosts {ghosts} reuse {reuse}"
                    expect(result.out, wanted[reuse].out, where)
                    pool = result.report()["devices"][0]["pool"]
                    expect(pool["hits"] + pool["misses"] >= 3 * 20, True, f"{where}: {pool}")


@test
def gone_in_the_middle():
    """While other threads allocate, free and submit in it. Who has one of his own is left alone."""
    for backing in BACKINGS:
        for which in ("created", "primary"):
            for ghosts in ("off", "on"):
                contexts("goes_among_work", str(ROUNDS), which, VRAMSIM_GHOSTS=ghosts,
                         VRAMSHIM_BACKING=backing, VRAMSHIM_POOL_DECAY_MS="1")


@test
def green_contexts_take_the_primary_along():
    for backing in BACKINGS:
        contexts("green_goes", str(ROUNDS), VRAMSHIM_BACKING=backing, VRAMSHIM_POOL_DECAY_MS="1")


if __name__ == "__main__":
    main(TESTS)
