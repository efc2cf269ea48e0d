#!/usr/bin/env python3
"""Numba arrays of known sizes: prints checksums, writes what it took (--facts FILE).

    python3 tests/clients/numba_alloc.py
"""
import argparse
import gc
import json

import numpy

if not hasattr(numpy, "row_stack"):  # numba-cuda 0.30 still asks for what numpy 2.5 dropped
    numpy.row_stack = numpy.vstack
from numba import cuda


@cuda.jit
def fill(data, seed):
    i = cuda.grid(1)
    if i < data.size:
        data[i] = i * 3 + seed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", metavar="FILE", help="write the known counts as JSON")
    options = parser.parse_args()

    count = taken = 0
    kept = []
    for number, n in enumerate((100, 5000, 1 << 18, 1 << 21)):
        data = cuda.device_array(n, dtype=numpy.int64)
        count, taken = count + 1, taken + 8 * n
        fill[(n + 255) // 256, 256](data, number)
        print(f"n {n}: {int(data.copy_to_host().sum())}", flush=True)
        if number % 2:
            kept.append(data)
        del data
    copy = cuda.to_device(numpy.arange(12345, dtype=numpy.int32))
    count, taken = count + 1, taken + 4 * 12345
    print("copied back:", int(copy.copy_to_host().sum()))
    kept.append(copy)
    gc.collect()
    deallocations = cuda.current_context().deallocations
    deallocations.clear()
    cuda.synchronize()
    live = sum(array.size * array.dtype.itemsize for array in kept)
    print("kept", len(kept), "arrays,", live, "bytes")
    if options.facts:
        with open(options.facts, "w") as out:
            json.dump({"count": count, "bytes": taken, "live_before_exit": live}, out)


if __name__ == "__main__":
    main()
