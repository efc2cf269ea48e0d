#!/usr/bin/env python3
"""Memory of one framework used in another, without a copy: PyTorch, CuPy, JAX and Numba, as far as they
are installed. Prints checksums; whoever takes the memory lets it go last, in different orders.

    python3 tests/clients/dlpack.py [--no-caches | --async]

With --no-caches PyTorch and CuPy ask the driver for each array, so that each is the shim's to serve; with
--async PyTorch, CuPy and JAX take stream-ordered memory of the driver's pools.
"""
import argparse
import gc
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".02")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if "--no-caches" in sys.argv:
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
if "--async" in sys.argv:
    os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "cuda_async"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"


def optional(name):
    """A module, or None where it is not installed (said, so that two runs compare)."""
    try:
        return __import__(name, fromlist=["_"])
    except ImportError:
        print("without", name)
        return None


def torch_and_cupy(torch, cupy):
    for n in (1, 1000, 1 << 20, 3 << 20):
        ours = torch.arange(n, device="cuda", dtype=torch.int64)
        theirs = cupy.from_dlpack(ours)
        theirs *= 3
        torch.cuda.synchronize()
        cupy.cuda.Device().synchronize()
        print("torch -> cupy", n, int(ours.sum()), theirs.data.ptr == ours.data_ptr())
        del ours
        gc.collect()
        print("  after torch let go", int(theirs.sum()))
        back = torch.from_dlpack(theirs + 1)
        del theirs
        gc.collect()
        more = [torch.full((n,), 7, device="cuda", dtype=torch.int64) for _ in range(4)]
        cupy.cuda.Device().synchronize()
        torch.cuda.synchronize()
        print("  cupy -> torch", int(back.sum()), sum(int(m.sum()) for m in more))


def torch_and_numba(torch, cuda, numpy):
    for n in (100, 1 << 20):
        ours = torch.arange(n, device="cuda", dtype=torch.int64)
        torch.cuda.synchronize()
        view = cuda.as_cuda_array(ours)
        print("torch -> numba", n, int(view.copy_to_host().sum()))
        theirs = cuda.to_device(numpy.arange(n, dtype=numpy.int64))
        seen = torch.as_tensor(theirs, device="cuda")
        seen += 5
        torch.cuda.synchronize()
        print("  numba -> torch", int(theirs.copy_to_host().sum()))
        del view, ours, seen, theirs
        gc.collect()


def torch_and_jax(torch, jax):
    from jax import dlpack, numpy as jnp
    try:
        platform = jax.devices()[0].platform
    except RuntimeError:  # its plugin does not get along with what is loaded already
        platform = "none"
    if platform not in ("gpu", "cuda"):
        print("jax has no GPU here")
        return
    for n in (128, 1 << 18):
        ours = torch.arange(n, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        theirs = dlpack.from_dlpack(ours)
        result = (theirs * 2 + 1).block_until_ready()
        del theirs, ours
        gc.collect()
        back = torch.from_dlpack(result)
        print("torch -> jax -> torch", n, int(back.sum()), int(jnp.sum(result)))
        del result
        gc.collect()
        print("  after jax let go", int(back.sum()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--no-caches", action="store_true")
    kind.add_argument("--async", action="store_true", dest="ordered")
    options = parser.parse_args()
    import numpy
    if not hasattr(numpy, "row_stack"):  # numba-cuda 0.30 still asks for what numpy 2.5 dropped
        numpy.row_stack = numpy.vstack
    import torch
    cupy, numba_cuda, jax = optional("cupy"), optional("numba.cuda"), optional("jax")
    if cupy and options.no_caches:
        cupy.cuda.set_allocator(None)
    if cupy and options.ordered:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    if cupy:
        torch_and_cupy(torch, cupy)
    if numba_cuda:
        torch_and_numba(torch, numba_cuda, numpy)
    if jax:
        torch_and_jax(torch, jax)
    gc.collect()
    torch.cuda.synchronize()
    print("done")


if __name__ == "__main__":
    main()
