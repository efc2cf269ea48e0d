#!/usr/bin/env python3
"""A small real training with PyTorch on the GPU, as a program that knows nothing of vramshim.

    train_torch.py [--steps N]

One mistake is planted: the loss of every step is kept with its graph, so that the activations of
every step stay alive. The last line says what PyTorch itself knows about its memory, as JSON.
"""
import argparse
import json

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps

    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 4096), torch.nn.GELU(),
        torch.nn.Linear(4096, 4096), torch.nn.GELU(),
        torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    history = []
    for step in range(steps):
        inputs = torch.randn(512, 1024, device="cuda")
        loss = (model(inputs) - inputs).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        history.append(loss)  # the mistake: loss.item() was meant
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}, "
                  f"{torch.cuda.memory_reserved() / 2**20:.0f} MiB reserved")
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print(json.dumps({"reserved_bytes": stats["reserved_bytes.all.current"],
                      "reserved_peak_bytes": stats["reserved_bytes.all.peak"],
                      "segments": stats["segment.all.allocated"]}))


if __name__ == "__main__":
    main()
