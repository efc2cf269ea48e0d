"""What the shim adds to a cuMemAlloc + cuMemFree pair, and to a launch, on a driver that costs nothing."""

import os

from harness import BIN, expect, run

BUDGET_NS = 150
LAUNCH_BUDGET_NS = 40
DRIVER = os.path.join(BIN, "libnull_driver.so")


def pair(threads, shim, *what):
    # The null driver has no memory that a pool could be made of: this is what counting costs.
    env = {"VRAMSHIM_REPORT": "none", "VRAMSHIM_POOL": "off"}
    result = run("pair_bench", DRIVER, str(threads), *what, shim=shim, env=env)
    expect((result.code, result.err), (0, ""))
    return float(result.out)


def main():
    print("ns a pair | without | with | added")
    added = {}
    for threads in (1, 2):
        bare, ours = pair(threads, False), pair(threads, True)
        added[threads] = ours - bare
        print(f"{threads} thread(s) | {bare:.0f} | {ours:.0f} | {added[threads]:.0f}")
    # Another process may have had the processor: one of a few tries must be undisturbed.
    best = added[1]
    for _ in range(4):
        if best <= BUDGET_NS:
            break
        best = min(best, pair(1, True) - pair(1, False))
    expect(best <= BUDGET_NS, True, f"{best:.0f} ns added, {BUDGET_NS} allowed")

    launches = [pair(1, True, "launch") - pair(1, False, "launch") for _ in range(3)]
    print(f"launch, added: {min(launches):.1f}")
    expect(min(launches) <= LAUNCH_BUDGET_NS, True, f"{launches} ns added to a launch")


main()
