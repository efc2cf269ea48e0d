#!/usr/bin/env python3
"""A CuPy loop of element-wise steps and products, with CuPy's pool or with none; timed on request.

A long-lived process that another one drives through pipes (see torch_gpt2.py): it reads commands on
stdin, one a line, and answers each with one JSON line on stdout.

    ready               first line, unasked, after a warm-up
    block SIZES COUNT   SIZES: mixed (matrices of 256 to 2048 rows) or small (256 only)
                        -> {"ms": of a loop over the sizes, "sum": what came out}
    quit

    printf 'block mixed 100\\nquit\\n' | python3 tests/clients/cupy_loop.py --pool none
"""
import argparse
import json
import os
import sys
import time

import cupy

SIZES = {"mixed": (256, 512, 1024, 1536, 2048), "small": (256,) * 5}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pool", choices=("default", "none"), default="default")
    parser.add_argument("--cpus", type=int, metavar="N", help="stay on the first N processors")
    options = parser.parse_args()
    if options.cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.cpus])
    if options.pool == "none":
        cupy.cuda.set_allocator(None)
    weights = {n: cupy.eye(n, dtype=cupy.float32) for n in SIZES["mixed"]}

    def once(n):
        a = cupy.full((n, n), 0.5, dtype=cupy.float32)
        b = a * 2 + 1
        c = cupy.sqrt(b @ weights[n] + 2)
        return (c @ weights[n] - a).sum()

    def block(sizes, count):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(count):
            for n in SIZES[sizes]:
                last = once(n)
        cupy.cuda.Device().synchronize()
        return (time.perf_counter() - start) * 1e3 / count, float(last)

    for sizes in SIZES:
        block(sizes, 30)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            break
        if words[0] == "block" and len(words) == 3 and words[1] in SIZES:
            ms, last = block(words[1], int(words[2]))
            print(json.dumps({"ms": ms, "sum": last}), flush=True)
        else:
            print(json.dumps({"error": f"unknown command {line.strip()!r}"}), flush=True)


if __name__ == "__main__":
    main()
