#!/usr/bin/env python3
"""A small deterministic JAX training with JAX's default allocator (one large piece, taken at the start).

    XLA_PYTHON_CLIENT_MEM_FRACTION=.1 python3 tests/clients/jax_train.py --steps 5

Prints losses to the last digit; --facts FILE writes what JAX says of its memory.
"""
import argparse
import json
import os

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")

import jax
import jax.numpy as jnp


def loss_of(weights, x, y):
    for weight in weights[:-1]:
        x = jnp.tanh(x @ weight)
    return jnp.mean((x @ weights[-1] - y) ** 2)


@jax.jit
def step(weights, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
    return [w - 0.01 * g for w, g in zip(weights, gradients)], loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--facts", metavar="FILE", help="write JAX's own memory counters as JSON")
    options = parser.parse_args()

    keys = jax.random.split(jax.random.PRNGKey(7), 6)
    weights = [jax.random.normal(k, (options.width, options.width)) * 0.03 for k in keys[:4]]
    x = jax.random.normal(keys[4], (512, options.width))
    y = jax.random.normal(keys[5], (512, options.width))
    for number in range(options.steps):
        weights, loss = step(weights, x, y)
        print(f"step {number} loss {float(loss)!r}", flush=True)
    device = jax.devices()[0]
    print("platform", device.platform)
    if options.facts:
        stats = device.memory_stats() or {}
        with open(options.facts, "w") as out:
            json.dump({k: int(v) for k, v in stats.items()}, out)


if __name__ == "__main__":
    main()
