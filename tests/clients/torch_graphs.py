#!/usr/bin/env python3
"""CUDA graphs in PyTorch: captured training steps, replayed among other work, and what becomes of their
memory; prints losses and sums to the last digit.

    PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync python3 tests/clients/torch_graphs.py

What a PyTorch does not do (torch.compile with graphs under some allocators) it says by its own error, whose
kind is printed: the same with the shim.
"""
import argparse
import gc
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn as nn


def make_net(width):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width),
                         nn.LayerNorm(width), nn.Linear(width, 1)).cuda()


class Captured:
    """A training step on fixed inputs as a graph."""

    def __init__(self, width, batch):
        self.net = make_net(width)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.x = torch.zeros(batch, width, device="cuda")
        self.y = torch.zeros(batch, 1, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step()

    def step(self):
        loss = (self.net(self.x) - self.y).square().mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def replay(self, number):
        self.x.copy_(torch.linspace(-1, 1, self.x.numel(), device="cuda").view_as(self.x) * (number + 1))
        self.y.fill_(0.25 * number)
        self.graph.replay()
        return self.loss.item()


def other_work(number):
    """Takes and lets go what a graph must not be given, and checks it."""
    held = [torch.full((1 + 37 * i, 1024), float(i + number), device="cuda") for i in range(20)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        passing = [h * 2 for h in held[::2]]
    torch.cuda.current_stream().wait_stream(side)
    good = all(bool((h == i + number).all()) for i, h in enumerate(held))
    good &= all(bool((p == 2 * (2 * i + number)).all()) for i, p in enumerate(passing))
    return good


def captured_steps():
    small, large = Captured(64, 128), Captured(512, 1024)
    for number in range(6):
        print("replay", number, repr(small.replay(number)), repr(large.replay(number)),
              "other work", other_work(number), flush=True)
        if number % 2:
            torch.cuda.empty_cache()
    del large
    gc.collect()
    torch.cuda.synchronize()
    print("a graph is gone", other_work(9), repr(small.replay(7)))
    again = Captured(512, 1024)
    print("captured again", repr(again.replay(1)), repr(small.replay(8)), other_work(10))


def allocation_inside():
    """Tensors that live only inside a graph, several graphs of one pool, and one that is replayed after
    another was let go."""
    source = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
    pool, graphs, outputs = torch.cuda.graph_pool_handle(), [], []
    torch.cuda.synchronize()
    for scale in (2, 3, 5):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            inner = source * scale
            for _ in range(5):
                inner = inner * 0.5 + 1
            outputs.append(inner.double().sum())
            del inner  # else the next capture frees it, and that graph cannot do without this one
        graphs.append(graph)
    for number in range(3):
        source.fill_(number + 1)
        for graph, output in zip(graphs, outputs):
            graph.replay()
            print("inside", number, repr(output.item()))
    graphs.pop(0)
    outputs.pop(0)
    gc.collect()
    print("other work", other_work(4))
    graphs[0].replay()
    print("after another went", repr(outputs[0].item()))


def compiled():
    net = make_net(128)
    try:
        fast = torch.compile(net, mode="reduce-overhead")
        for number in range(5):
            x = torch.full((64, 128), 0.1 * (number + 1), device="cuda")
            loss = fast(x).square().mean()
            loss.backward()
            print("compiled", number, repr(round(loss.item(), 4)))
            net.zero_grad(set_to_none=True)
            del x, loss
    except Exception as error:  # whatever it is, it is not ours
        print("compiled:", type(error).__name__)


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    torch.use_deterministic_algorithms(True)
    print("backend", torch.cuda.get_allocator_backend())
    captured_steps()
    allocation_inside()
    compiled()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("done", other_work(1))


if __name__ == "__main__":
    main()
