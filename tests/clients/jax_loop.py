#!/usr/bin/env python3
"""Steps of a JAX training, and work whose arrays change their sizes, timed on request.

XLA_PYTHON_CLIENT_ALLOCATOR decides who serves the memory. Obeys commands on stdin (worker.py):

    block WORK COUNT   WORK: train (the same shapes in every step) or sizes (products of several sizes, not
                       compiled into one) -> {"ms": of a step, "sum": what came out}

    printf 'block train 20\\nquit\\n' | XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async python3 tests/clients/jax_loop.py
"""
import argparse
import time

import worker
from jax_train import jax, jnp, step

SIZES = (256, 384, 512, 1024, 1536, 2048)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=2048)
    worker.add_cpus(parser)
    options = parser.parse_args()
    worker.stay_on(options.cpus)
    keys = jax.random.split(jax.random.PRNGKey(7), 8)
    first = [jax.random.normal(k, (options.width, options.width)) * 0.02 for k in keys[:6]]
    x = jax.random.normal(keys[6], (512, options.width))
    y = jax.random.normal(keys[7], (512, options.width))
    eyes = {n: jnp.eye(n) for n in SIZES}

    def train(count):
        weights = first
        for _ in range(count):
            weights, loss = step(weights, x, y)
        return loss

    def sizes(count):
        for _ in range(count):
            total = jnp.zeros(())
            for n in SIZES:
                a = jnp.full((n, n), 0.5)
                b = jnp.sqrt(a * 2 + 1) @ eyes[n]
                total = total + (b @ eyes[n] - a).sum()
        return total

    work = {"train": train, "sizes": sizes}

    def block(name, count):
        if name not in work:
            raise ValueError(f"work is {', '.join(work)}")
        start = time.perf_counter()
        last = work[name](int(count)).block_until_ready()
        return {"ms": (time.perf_counter() - start) * 1e3 / int(count), "sum": float(last)}

    for name in work:
        block(name, 10)
    worker.serve({"block": block}, platform=jax.devices()[0].platform)


if __name__ == "__main__":
    main()
