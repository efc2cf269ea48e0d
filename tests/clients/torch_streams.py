#!/usr/bin/env python3
"""Eight busy CUDA streams, each of which takes tensors, uses them and lets them go; timed on request.

With --prefetch the input of each comes from pinned memory on a side stream that all share, as data loaders
do it: copied there, waited for by an event, and recorded for the stream that uses it. Obeys commands on
stdin (worker.py):

    block ROUNDS   -> {"ms": of a round, in which each stream does its work once; "sum": what came out}

    printf 'block 100\\nquit\\n' | python3 tests/clients/torch_streams.py
"""
import argparse
import time

import torch

import worker


class Stream:
    """One stream's work: fill, two products, two element-wise steps, a sum; all into fresh tensors."""

    def __init__(self, number, width, side):
        self.stream = torch.cuda.Stream()
        self.rows = width // 2 + number * width // 16  # no two streams ask for the same sizes
        self.width = width
        self.side = side  # where its input is copied; None: it makes that itself
        if side:
            self.batch = torch.full((self.rows, width), 0.5, dtype=torch.bfloat16, pin_memory=True)
        with torch.cuda.stream(self.stream):
            self.weight = torch.eye(width, device="cuda", dtype=torch.bfloat16)
            self.total = torch.zeros((), device="cuda")

    def work(self):
        a = self.prefetched() if self.side else None
        with torch.cuda.stream(self.stream):
            if a is None:
                a = torch.full((self.rows, self.width), 0.5, device="cuda", dtype=torch.bfloat16)
            b = a @ self.weight
            c = torch.relu(b * 2 - a)
            del a, b
            d = c @ self.weight
            self.total += d[0, 0].float()

    def prefetched(self):
        """The input, copied on the side stream; this one comes behind it."""
        with torch.cuda.stream(self.side):
            a = self.batch.to("cuda", non_blocking=True)
        self.stream.wait_stream(self.side)
        a.record_stream(self.stream)
        return a


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--prefetch", action="store_true", help="inputs come on a side stream")
    worker.add_cpus(parser)
    options = parser.parse_args()
    worker.stay_on(options.cpus)
    side = torch.cuda.Stream() if options.prefetch else None
    streams = [Stream(number, options.width, side) for number in range(options.streams)]
    torch.cuda.synchronize()

    def block(rounds):
        start = time.perf_counter()
        for _ in range(int(rounds)):
            for stream in streams:
                stream.work()
        torch.cuda.synchronize()
        ms = (time.perf_counter() - start) * 1e3 / int(rounds)
        done = sum(stream.total.item() for stream in streams)
        for stream in streams:
            with torch.cuda.stream(stream.stream):
                stream.total.zero_()
        torch.cuda.synchronize()
        return {"ms": ms, "sum": done}

    for _ in range(3):
        block(20)
    worker.serve({"block": block})


if __name__ == "__main__":
    main()
