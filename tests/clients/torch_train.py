#!/usr/bin/env python3
"""Trains a small GPT-like model deterministically and prints every loss to the last digit.

Same seed, same GPU, same libraries: the same digits, whatever allocator serves the memory. At the end
it can write what PyTorch itself says it took (--facts FILE), to be held against the shim's report.

    python3 tests/clients/torch_train.py --steps 5
    python3 tests/clients/torch_train.py --probe      # only make the cuBLAS handle, then the same facts

Only what PyTorch's memory-management documentation offers is used; the model is our own.
"""
import argparse
import gc
import hashlib
import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    """Causal self-attention by plain matrix products, then a two-layer perceptron."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        mixed = scores.masked_fill(mask, float("-inf")).softmax(dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, length):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.place
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def facts_of_torch():
    """What PyTorch says it took from the driver, and what was asked of it."""
    stats = torch.cuda.memory_stats()
    wanted = [
        "reserved_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.allocated",
        "segment.all.allocated", "segment.all.freed", "segment.all.current",
        "allocation.all.allocated", "allocation.all.freed",
        "requested_bytes.all.allocated", "allocated_bytes.all.peak", "allocated_bytes.all.current",
        "num_device_alloc", "num_device_free", "num_alloc_retries", "num_ooms",
    ]
    facts = {name: stats.get(name) for name in wanted}
    facts["backend"] = torch.cuda.get_allocator_backend()
    try:
        segments = torch.cuda.memory_snapshot()
        facts["segments_bytes"] = sum(s["total_size"] for s in segments)
        facts["segments_count"] = len(segments)
        facts["expandable_segments"] = sum(bool(s.get("is_expandable")) for s in segments)
    except Exception as error:  # an allocator backend without snapshots
        facts["segments_bytes"] = facts["segments_count"] = facts["expandable_segments"] = None
        facts["snapshot_error"] = str(error)
    return facts


def train(options):
    torch.manual_seed(options.seed)
    model = Model(options.vocabulary, options.width, options.heads, options.layers,
                  options.length).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    source = torch.Generator().manual_seed(options.seed)
    for step in range(options.steps):
        data = torch.randint(options.vocabulary, (options.batch, options.length + 1),
                             generator=source).to(options.device)
        loss = model(data[:, :-1], data[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item()!r}", flush=True)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print("parameters", digest.hexdigest(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--facts", metavar="FILE", help="write PyTorch's own counters as JSON")
    parser.add_argument("--probe", action="store_true",
                        help="do not train: only make cuBLAS's handles and their workspaces")
    options = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    if options.probe:
        torch.cuda.current_blas_handle()
        weight = torch.ones(256, 256, device=options.device, requires_grad=True)
        loss = F.linear(weight, weight, weight[0]).sum() + (weight @ weight).sum()
        loss.backward()  # runs in a thread of its own, with a handle of its own
        print(loss.item())
        torch.cuda.synchronize()
    else:
        train(options)
    gc.collect()
    if options.facts:
        torch.cuda.synchronize()
        with open(options.facts, "w") as out:
            json.dump(facts_of_torch(), out)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
