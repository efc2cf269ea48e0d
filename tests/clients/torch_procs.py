#!/usr/bin/env python3
"""PyTorch in several processes: torch.multiprocessing and DataLoader workers.

    python3 tests/clients/torch_procs.py spawn|forkserver|dataloader [--facts FILE]

spawn, forkserver: two children take GPU memory of their own. dataloader: the parent trains on the GPU
while four forked workers, which never touch CUDA, prepare batches. Prints facts without pids; FILE
gets one JSON line a process: {"pid", "role", "cuda", "bytes", "count"} as PyTorch counts.
"""
import argparse
import json
import os

import torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader, Dataset

MiB = 1 << 20


def note(path, role, cuda):
    if not path:
        return
    stats = torch.cuda.memory_stats() if cuda else {}
    line = json.dumps({"pid": os.getpid(), "role": role, "cuda": cuda,
                       "bytes": stats.get("reserved_bytes.all.peak", 0),
                       "count": stats.get("num_device_alloc", 0)}) + "\n"
    with open(path, "a") as out:
        out.write(line)


def child(number, path):
    blocks = [torch.full((n * MiB,), number + 1, dtype=torch.uint8, device="cuda")
              for n in (21, 30 + number)]
    total = sum(int(block.sum(dtype=torch.int64)) for block in blocks)
    assert total == (number + 1) * (51 + number) * MiB, total
    note(path, f"child {number}", True)


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((1000,), float(index * index))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("spawn", "forkserver", "dataloader"))
    parser.add_argument("--facts", metavar="FILE")
    options = parser.parse_args()

    if options.mode == "dataloader":
        weight = torch.ones(1000, device="cuda")
        total = 0.0
        for epoch in range(2):
            for batch in DataLoader(Squares(), batch_size=8, num_workers=4, pin_memory=True,
                                    multiprocessing_context="fork"):
                total += (batch.cuda(non_blocking=True) * weight).sum(dtype=torch.float64).item()
            print(f"epoch {epoch}: {total!r}", flush=True)
    else:
        context = multiprocessing.get_context(options.mode)
        children = [context.Process(target=child, args=(n, options.facts)) for n in range(2)]
        for process in children:
            process.start()
        for process in children:
            process.join()
            print("child left with", process.exitcode, flush=True)
        block = torch.zeros(40 * MiB, dtype=torch.uint8, device="cuda")
        print("parent:", int(block.sum(dtype=torch.int64)), flush=True)
    note(options.facts, "parent", True)


if __name__ == "__main__":
    main()
