#!/usr/bin/env python3
"""A training loop as a program that knows nothing of vramshim would write it.

Standard library only: the CUDA driver API through ctypes. The memory pattern is that of a real
training: weights and optimizer state for the whole run, activations and gradients per step, and
one mistake: a metrics buffer per step that is kept in a list for ever.

    train_ctypes.py [--steps N]

The last line says what the program itself knows about its memory, as JSON.
"""
import argparse
import ctypes
import json

KIB, MIB = 1 << 10, 1 << 20
LAYERS = [8 * MIB, 4 * MIB, 4 * MIB, 2 * MIB]  # bytes of weights
ACTIVATIONS = [6 * MIB, 3 * MIB, 3 * MIB, 1 * MIB]
METRICS = 96 * KIB

cuda = ctypes.CDLL("libcuda.so.1")


def check(result, what):
    if result != 0:
        raise RuntimeError(f"{what}: CUDA error {result}")


class Memory:
    """Device memory, and what this program believes it holds."""

    def __init__(self):
        self.sizes = {}
        self.live = self.peak = self.allocations = 0

    def take(self, size, value=0):
        pointer = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), "cuMemAlloc")
        check(cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(value), ctypes.c_size_t(size)),
              "cuMemsetD8")
        self.sizes[pointer.value] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        self.allocations += 1
        return pointer.value

    def give(self, pointer):
        check(cuda.cuMemFree_v2(ctypes.c_uint64(pointer)), "cuMemFree")
        self.live -= self.sizes.pop(pointer)


def start():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def train_step(memory, step, history):
    activations = [memory.take(size, step % 256) for size in ACTIVATIONS]  # forward
    gradients = []
    for size in reversed(LAYERS):  # backward: an activation goes when its gradient is there
        gradients.append(memory.take(size))
        memory.give(activations.pop())
    history.append(memory.take(METRICS))  # the mistake: nobody ever frees these
    for gradient in gradients:  # optimizer
        memory.give(gradient)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps

    start()
    memory, history = Memory(), []
    weights = [memory.take(size) for size in LAYERS]
    moments = [memory.take(size) for size in LAYERS for _ in range(2)]  # as Adam's
    for step in range(steps):
        train_step(memory, step, history)
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}: {memory.live / MIB:.1f} MiB in use")
    for pointer in weights + moments:
        memory.give(pointer)
    print(json.dumps({"peak_bytes": memory.peak, "allocations": memory.allocations,
                      "leaked_bytes": memory.live, "leaked_count": len(memory.sizes),
                      "leaked_size": METRICS}))


if __name__ == "__main__":
    main()
