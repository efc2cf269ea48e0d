#!/usr/bin/env python3
"""Eight busy CUDA streams, each of which takes tensors, uses them and lets them go; timed on request.

A long-lived process that another one drives through pipes (see torch_gpt2.py): it reads commands on
stdin, one a line, and answers each with one JSON line on stdout.

    ready          first line, unasked, after a warm-up
    block ROUNDS   -> {"ms": of a round, in which each stream does its work once; "sum": what came out}
    quit

    printf 'block 100\\nquit\\n' | python3 tests/clients/torch_streams.py
"""
import argparse
import json
import os
import sys
import time

import torch


class Stream:
    """One stream's work: fill, two products, two element-wise steps, a sum; all into fresh tensors."""

    def __init__(self, number, width):
        self.stream = torch.cuda.Stream()
        self.rows = width // 2 + number * width // 16  # no two streams ask for the same sizes
        self.width = width
        with torch.cuda.stream(self.stream):
            self.weight = torch.eye(width, device="cuda", dtype=torch.bfloat16)
            self.total = torch.zeros((), device="cuda")

    def work(self):
        with torch.cuda.stream(self.stream):
            a = torch.full((self.rows, self.width), 0.5, device="cuda", dtype=torch.bfloat16)
            b = a @ self.weight
            c = torch.relu(b * 2 - a)
            del a, b
            d = c @ self.weight
            self.total += d[0, 0].float()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--cpus", type=int, metavar="N", help="stay on the first N processors")
    options = parser.parse_args()
    if options.cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.cpus])
    streams = [Stream(number, options.width) for number in range(options.streams)]
    torch.cuda.synchronize()

    def block(rounds):
        start = time.perf_counter()
        for _ in range(rounds):
            for stream in streams:
                stream.work()
        torch.cuda.synchronize()
        ms = (time.perf_counter() - start) * 1e3 / rounds
        done = sum(stream.total.item() for stream in streams)
        for stream in streams:
            with torch.cuda.stream(stream.stream):
                stream.total.zero_()
        torch.cuda.synchronize()
        return ms, done

    for _ in range(3):
        block(20)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            break
        if words[0] == "block":
            ms, done = block(int(words[1]))
            print(json.dumps({"ms": ms, "sum": done}), flush=True)
        else:
            print(json.dumps({"error": f"unknown command {words[0]!r}"}), flush=True)


if __name__ == "__main__":
    main()
