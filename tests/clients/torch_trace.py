#!/usr/bin/env python3
"""Records what a GPT-2 training asks of PyTorch's allocator, as a trace for `vramshim replay`.

    python3 tests/clients/torch_trace.py --shapes fixed --out fixed.csv.gz

Columns: op,ptr,size,stream. a: allocation, f: free (as the program asked for it), S and s: what
PyTorch took from the driver and gave back. ptr (hex; the lowest becomes 2 MiB) and size in bytes,
stream a number. The trace begins before the model does, so nothing is live at its start. Where the
file would be larger than --most bytes, the end is cut off: a beginning of a trace is a trace.
"""
import argparse
import gzip
import os
import sys

import torch

import torch_gpt2

FIRST = 1 << 21  # where the lowest address goes: 0 would be no pointer
OPS = {"alloc": "a", "free_requested": "f", "segment_alloc": "S", "segment_free": "s"}


def rows_of(entries):
    """Lines of the trace, from PyTorch's entries."""
    wanted = [e for e in entries if e["action"] in OPS]
    lowest = min((e["addr"] for e in wanted), default=0) - FIRST
    streams = {}
    return [f"{OPS[e['action']]},{e['addr'] - lowest:x},{e['size']},"
            f"{streams.setdefault(e.get('stream', 0), len(streams))}" for e in wanted]


def packed(rows):
    # No name and no time inside: the same rows make the same file.
    return gzip.compress(("\n".join(["op,ptr,size,stream", *rows]) + "\n").encode(), 9, mtime=0)


def fitting(rows, most):
    """The most rows from the beginning whose file has at most so many bytes, and that file."""
    data = packed(rows)
    while len(data) > most and rows:
        rows = rows[:min(len(rows) - 1, int(len(rows) * most / len(data) * 0.99))]
        data = packed(rows)
    return rows, data


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", choices=("fixed", "random"), default="fixed")
    parser.add_argument("--steps", type=int, help="(fixed: 5, random: 12)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=6, help="the rest is as GPT-2 124M")
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--most", type=int, default=60000, metavar="BYTES")
    options = parser.parse_args()
    steps = options.steps or (5 if options.shapes == "fixed" else 12)
    training_options = argparse.Namespace(seed=options.seed, layers=options.layers, width=768, heads=12,
                                          vocabulary=50257, batch=8, length=1024, deterministic=False)

    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1000000)
    training = torch_gpt2.Training(training_options)
    shapes = ["fixed"] * steps if options.shapes == "fixed" else torch_gpt2.shapes_of(
        options.seed, steps, 8, 1024)
    training.timed(shapes)
    entries = [e for device in torch.cuda.memory._snapshot()["device_traces"] for e in device]
    torch.cuda.memory._record_memory_history(enabled=None)
    every = rows_of(entries)
    rows, data = fitting(every, options.most)
    if not any(row.startswith("a,") for row in rows):
        sys.exit("torch_trace: PyTorch recorded no allocation (is its cache off?)")
    with open(options.out + ".tmp", "wb") as file:
        file.write(data)
    os.replace(options.out + ".tmp", options.out)
    print(f"{options.out}: {len(rows)} of {len(every)} rows, {len(data)} bytes")


if __name__ == "__main__":
    main()
