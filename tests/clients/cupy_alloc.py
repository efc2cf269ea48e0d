#!/usr/bin/env python3
"""CuPy with its own pool, with none or with stream-ordered memory; prints checksums and writes what CuPy
itself counted.

    python3 tests/clients/cupy_alloc.py --pool default
    python3 tests/clients/cupy_alloc.py --pool none
    python3 tests/clients/cupy_alloc.py --pool async

With the pool, a memory hook counts each piece that the pool takes from the driver. With none, part of
the memory is taken under set_allocator(None) in known sizes, and part through an allocator that does
the same as None and counts. With async an allocator counts what MemoryAsyncPool is asked for, and the
pool's own statistics are noted at a few points.
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


class Counted:
    """An allocator that counts what another is asked for, rounded up to the unit that it takes."""

    def __init__(self, malloc, unit=1):
        self.malloc, self.unit, self.count, self.bytes = malloc, unit, 0, 0

    def add(self, size):
        self.count += size > 0
        self.bytes += -(-size // self.unit) * self.unit

    def __call__(self, size):
        self.add(size)
        return self.malloc(size)

    def facts(self):
        return {"count": self.count, "bytes": self.bytes}


def no_pool():
    plain = Counted(lambda size: cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0))
    cupy.cuda.set_allocator(None)
    for n in (1, 513, 100000, 7 << 20):
        block = cupy.empty(n, dtype=cupy.uint8)
        plain.add(n)
        del block
    cupy.cuda.set_allocator(plain)
    work()
    kept = cupy.zeros(5 << 20, dtype=cupy.uint8)
    print("kept", int(kept.sum()))
    gc.collect()
    return plain.facts()


def async_pool():
    pool, points = cupy.cuda.MemoryAsyncPool(), []
    counted = Counted(pool.malloc, 512)

    def note(name, live):
        cupy.cuda.Device().synchronize()
        used, total = pool.used_bytes(), pool.total_bytes()
        points.append({"point": name, "live": live, "used": used, "total": total})
        print(f"{name}: used is what lives and some rounding: {live <= used <= live * 1.1 + (2 << 20)}, "
              f"the total has that: {total >= used}", flush=True)

    cupy.cuda.set_allocator(counted)
    note("at first", 0)
    work()
    note("after work", 0)
    kept = [cupy.zeros(n << 20, dtype=cupy.uint8) for n in (1, 5, 40, 100)]
    print("kept", sum(int(k.sum()) for k in kept))
    gc.collect()
    note("kept", 146 << 20)
    del kept[2]
    note("less", 106 << 20)
    pool.free_all_blocks()
    note("free blocks are let go", 106 << 20)
    del kept
    gc.collect()
    pool.free_all_blocks()
    note("at last", 0)
    return {**counted.facts(), "points": points}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pool", choices=("default", "none", "async"), default="default")
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
    elif options.pool == "async":
        facts.update(async_pool())
    else:
        facts.update(no_pool())
    cupy.cuda.Device().synchronize()
    if options.facts:
        with open(options.facts, "w") as out:
            json.dump(facts, out)


if __name__ == "__main__":
    main()
