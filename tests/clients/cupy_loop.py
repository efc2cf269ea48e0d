#!/usr/bin/env python3
"""A CuPy loop of element-wise steps and products, timed on request.

With CuPy's own pool, with none, or with stream-ordered memory. Obeys commands on stdin (worker.py):

    block SIZES COUNT   SIZES: mixed (matrices of 256 to 2048 rows) or small (256 only)
                        -> {"ms": of a loop over the sizes, "sum": what came out}

    printf 'block mixed 100\\nquit\\n' | python3 tests/clients/cupy_loop.py --pool none
"""
import argparse
import time

import cupy

import worker

SIZES = {"mixed": (256, 512, 1024, 1536, 2048), "small": (256,) * 5}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pool", choices=("default", "none", "async"), default="default")
    worker.add_cpus(parser)
    options = parser.parse_args()
    worker.stay_on(options.cpus)
    if options.pool == "none":
        cupy.cuda.set_allocator(None)
    elif options.pool == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    weights = {n: cupy.eye(n, dtype=cupy.float32) for n in SIZES["mixed"]}

    def once(n):
        a = cupy.full((n, n), 0.5, dtype=cupy.float32)
        b = a * 2 + 1
        c = cupy.sqrt(b @ weights[n] + 2)
        return (c @ weights[n] - a).sum()

    def block(sizes, count):
        if sizes not in SIZES:
            raise ValueError(f"sizes are {', '.join(SIZES)}")
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(int(count)):
            for n in SIZES[sizes]:
                last = once(n)
        cupy.cuda.Device().synchronize()
        return {"ms": (time.perf_counter() - start) * 1e3 / int(count), "sum": float(last)}

    for sizes in SIZES:
        block(sizes, 30)
    worker.serve({"block": block})


if __name__ == "__main__":
    main()
