#!/usr/bin/env python3
"""Training steps of a GPT-2-sized model (124M, bf16, batch 8 x 1024, random tokens), timed on request.

Obeys commands on stdin (worker.py):

    block WARM STEPS   runs WARM unmeasured steps, then STEPS measured ones in one go, as training
                       does: the host runs ahead and waits at the end
                       -> {"ms": mean of a step}
    facts              -> {"reserved_peak": bytes, "device_allocs": count}

    printf 'block 2 10\\nquit\\n' | python3 tests/clients/torch_steptime.py
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import worker


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, length):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.place.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.token.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=50304)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--warm-up", type=int, default=8)
    worker.add_cpus(parser)
    options = parser.parse_args()
    worker.stay_on(options.cpus)

    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = GPT2(options.layers, options.width, options.heads, options.vocabulary,
                 options.length).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    shape = (options.batch, options.length)
    tokens = torch.randint(options.vocabulary, shape, device="cuda")
    targets = torch.randint(options.vocabulary, shape, device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def block(warm, count):
        for _ in range(int(warm)):
            step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(int(count)):
            step()
        torch.cuda.synchronize()
        return {"ms": (time.perf_counter() - start) * 1e3 / int(count)}

    def facts():
        stats = torch.cuda.memory_stats()
        return {"reserved_peak": stats["reserved_bytes.all.peak"],
                "device_allocs": stats.get("num_device_alloc")}

    block(options.warm_up, 1)
    worker.serve({"block": block, "facts": facts})


if __name__ == "__main__":
    main()
