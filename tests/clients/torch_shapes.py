#!/usr/bin/env python3
"""Work whose tensors change their sizes in other ways than a training of fixed shapes, timed on request.

--work is one of:

    kv     a cache of keys and values that grows by a token a step in every layer, as generation does
           without a preallocated one; sequences of several lengths, each from its start
    bert   an encoder trained on batches that climb a ladder of lengths, as buckets of sentences make them
    cnn    a small convolutional net on small images
    two    that net and the encoder by turns: each finds free what the other used, in other sizes

No step changes the weights, so that what comes out is the same whoever serves the memory. Obeys commands
on stdin (worker.py):

    block ROUNDS   -> {"ms": of a round, "sum": what came out}
    facts          what PyTorch counts

    printf 'block 5\\nfacts\\nquit\\n' | python3 tests/clients/torch_shapes.py --work kv
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import worker
from torch_gpt2 import facts

LADDER = ((64, 64), (48, 96), (40, 128), (28, 192), (20, 256), (14, 384), (10, 512))  # batch, length


class Cache:
    """Attention of one new token to all before it, in every layer; the caches grow by concatenation."""

    def __init__(self, layers=12, heads=16, width=64, batch=64):
        self.layers, self.shape = layers, (batch, heads, 1, width)
        self.mix = torch.eye(width, device="cuda", dtype=torch.bfloat16) * 0.5

    def round(self):
        total = torch.zeros((), device="cuda")
        for length in (64, 112, 40, 160):
            caches = [None] * self.layers
            for step in range(length):
                x = torch.full(self.shape, 1 / (step + 1), device="cuda", dtype=torch.bfloat16)
                for layer in range(self.layers):
                    key, value = x @ self.mix, x + 1
                    if caches[layer] is not None:
                        key = torch.cat((caches[layer][0], key), dim=2)
                        value = torch.cat((caches[layer][1], value), dim=2)
                    caches[layer] = key, value
                    x = (x @ key.transpose(-1, -2)).softmax(dim=-1) @ value * 0.5
            total += x.float().mean()
        return total


class EncoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        mixed = self.attention(x, x, x, need_weights=False)[0]
        x = self.norm1(x + mixed)
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder:
    """Forwards and backwards of a step for each rung of the ladder."""

    def __init__(self, layers=12, width=768, heads=12, ladder=LADDER):
        self.net = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(layers))).cuda()
        self.ladder, self.width = ladder, width

    def round(self):
        total = torch.zeros((), device="cuda")
        for batch, length in self.ladder:
            x = torch.linspace(-1, 1, batch * length * self.width, device="cuda").view(batch, length, -1)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = self.net(x).float().square().mean()
            self.net.zero_grad(set_to_none=True)
            loss.backward()
            total += loss.detach()
        return total


class SmallNet:
    """Forwards and backwards on images of 32 x 32."""

    def __init__(self, batch=512, channels=64, steps=8):
        layers, width = [], 3
        for wide in (channels, channels, 2 * channels, 2 * channels, 4 * channels):
            layers += [nn.Conv2d(width, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
            if wide != width and width != 3:
                layers.append(nn.MaxPool2d(2))
            width = wide
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                 nn.Linear(width, 10)).cuda()
        self.batch, self.steps = batch, steps

    def round(self):
        total = torch.zeros((), device="cuda")
        for step in range(self.steps):
            size = self.batch - 32 * (step % 4)  # the last batch of an epoch is a smaller one
            x = torch.linspace(-1, 1, size * 3 * 32 * 32, device="cuda").view(size, 3, 32, 32)
            y = torch.arange(size, device="cuda") % 10
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(self.net(x).float(), y)
            self.net.zero_grad(set_to_none=True)
            loss.backward()
            total += loss.detach()
        return total


class Two:
    def __init__(self):
        self.both = Encoder(layers=6, ladder=LADDER[1::2]), SmallNet(batch=1024, steps=4)

    def round(self):
        return sum(each.round() for each in self.both)


WORK = {"kv": Cache, "bert": Encoder, "cnn": SmallNet, "two": Two}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", choices=WORK, required=True)
    worker.add_cpus(parser)
    options = parser.parse_args()
    worker.stay_on(options.cpus)
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    work = WORK[options.work]()

    def block(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(int(rounds)):
            total = work.round()
        torch.cuda.synchronize()
        return {"ms": (time.perf_counter() - start) * 1e3 / int(rounds), "sum": total.item()}

    block(3)
    worker.serve({"block": block, "facts": facts})


if __name__ == "__main__":
    main()
