#!/usr/bin/env python3
"""Numba arrays of known sizes: prints checksums, writes what it took (--facts FILE).

    python3 tests/clients/numba_alloc.py [--async]

With --async a memory manager of its own gives Numba stream-ordered memory of the null stream.
"""
import argparse
import ctypes
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


def stream_ordered():
    """A memory manager for Numba."""

    class StreamOrdered(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
        """Numba's memory by cuMemAllocAsync and cuMemFreeAsync."""

        interface_version = 1
        _driver = ctypes.CDLL("libcuda.so.1")

        def initialize(self):
            """Nothing: the device has its pool."""

        def memalloc(self, size):
            address = ctypes.c_uint64()
            code = self._driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(size), None)
            if code != 0:
                raise MemoryError(f"cuMemAllocAsync({size}): {code}")
            address, free = address.value, self._driver.cuMemFreeAsync

            def finalizer():
                free(ctypes.c_uint64(address), None)

            return cuda.MemoryPointer(self.context, pointer_of(address), size, finalizer=finalizer)

        def get_memory_info(self):
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            self._driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
            return cuda.MemoryInfo(free=free.value, total=total.value)

    return StreamOrdered


def pointer_of(address):
    """As the bindings that Numba uses have it."""
    try:
        from cuda.bindings import driver
        return driver.CUdeviceptr(address)
    except ImportError:
        return ctypes.c_uint64(address)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", metavar="FILE", help="write the known counts as JSON")
    parser.add_argument("--async", action="store_true", dest="ordered", help="see above")
    options = parser.parse_args()
    if options.ordered:
        cuda.set_memory_manager(stream_ordered())

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
