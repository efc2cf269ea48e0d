#!/usr/bin/env python3
"""CuPy with its own pool or with none; prints checksums and writes what CuPy itself counted.

    python3 tests/clients/cupy_alloc.py --pool default
    python3 tests/clients/cupy_alloc.py --pool none

With the pool, a memory hook counts each piece that the pool takes from the driver. With none, part of
the memory is taken under set_allocator(None) in known sizes, and part through an allocator that does
the same as None and counts.
"""
import argparse
import gc
import json

import cupy


class Counter(cupy.cuda.MemoryHook):
    """Counts what the pool takes from the driver (not what it serves from its stock)."""

    name = "Counter"

    def __init__(self):
        super().__init__()
        self.count = self.bytes = 0

    def alloc_postprocess(self, **kwargs):
        self.count += 1
        self.bytes += kwargs["mem_size"]


def work():
    """Integer arithmetic only, so that the sums are exact whatever the order of the additions."""
    for round_number in range(3):
        for n in (1000, 50000, 1 << 20, 3 << 20):
            a = cupy.arange(n, dtype=cupy.int64)
            b = a * 3 + round_number
            print(f"round {round_number} n {n}: {int(b.sum())} {int((b ^ a).max())}", flush=True)
            del a, b


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pool", choices=("default", "none"), default="default")
    parser.add_argument("--facts", metavar="FILE", help="write CuPy's own counters as JSON")
    options = parser.parse_args()

    facts = {"pool": options.pool, "version": cupy.__version__}
    if options.pool == "default":
        pool = cupy.get_default_memory_pool()
        counter = Counter()
        with counter:
            work()
            kept = cupy.zeros(5 << 20, dtype=cupy.uint8)
            print("kept", int(kept.sum()))
            gc.collect()
        facts.update(count=counter.count, bytes=counter.bytes, live=pool.total_bytes())
    else:
        count = taken = 0

        def plain(size):
            nonlocal count, taken
            if size > 0:
                count += 1
                taken += size
            return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)

        cupy.cuda.set_allocator(None)
        for n in (1, 513, 100000, 7 << 20):
            block = cupy.empty(n, dtype=cupy.uint8)
            count += 1
            taken += n
            del block
        cupy.cuda.set_allocator(plain)
        work()
        kept = cupy.zeros(5 << 20, dtype=cupy.uint8)
        print("kept", int(kept.sum()))
        gc.collect()
        facts.update(count=count, bytes=taken)
    cupy.cuda.Device().synchronize()
    if options.facts:
        with open(options.facts, "w") as out:
            json.dump(facts, out)


if __name__ == "__main__":
    main()
