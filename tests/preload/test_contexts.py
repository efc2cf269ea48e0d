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


if __name__ == "__main__":
    main(TESTS)
