#!/usr/bin/env python3
"""What PyTorch says of its memory at a few points of a program; prints what must hold of it.

    PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync python3 tests/clients/torch_stats.py --facts FILE

FILE gets every figure as JSON.
"""
import argparse
import gc
import json

import torch

MIB = 1 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", metavar="FILE", help="write every figure as JSON")
    options = parser.parse_args()
    points = []

    def note(name, live):
        """live: MiB of the tensors that there are."""
        torch.cuda.synchronize()
        figures = {"point": name, "live": int(live * MIB), "allocated": torch.cuda.memory_allocated(),
                   "allocated_peak": torch.cuda.max_memory_allocated(),
                   "reserved": torch.cuda.memory_reserved(),
                   "reserved_peak": torch.cuda.max_memory_reserved()}
        points.append(figures)
        print(f"{name}: allocated is the tensors' and some rounding:",
              live * MIB <= figures["allocated"] <= live * MIB * 1.1 + 2 * MIB,
              "reserved has that:", figures["reserved"] >= figures["allocated"],
              "peaks are above:", figures["allocated_peak"] >= figures["allocated"]
              and figures["reserved_peak"] >= figures["reserved"], flush=True)

    print("backend", torch.cuda.get_allocator_backend())
    note("at first", 0)
    held = [torch.zeros(n * MIB, dtype=torch.uint8, device="cuda") for n in (3, 20, 64, 128)]
    note("held", 215)
    small = [torch.zeros(1000, dtype=torch.uint8, device="cuda") for _ in range(4096)]
    note("and many small ones", 215 + 4096 * 1000 / MIB)
    del held[2]
    note("less", 151 + 4096 * 1000 / MIB)
    del small
    gc.collect()
    note("no small ones", 151)
    torch.cuda.reset_peak_memory_stats()
    note("peaks are reset", 151)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        more = torch.zeros(256 * MIB, dtype=torch.uint8, device="cuda")
    side.synchronize()
    note("on another stream", 151 + 256)
    del more
    note("gone from there", 151)
    torch.cuda.empty_cache()
    note("the cache is empty", 151)
    del held
    gc.collect()
    torch.cuda.empty_cache()
    note("at last", 0)
    if options.facts:
        with open(options.facts, "w") as out:
            json.dump({"points": points}, out)


if __name__ == "__main__":
    main()
