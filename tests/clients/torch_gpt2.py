#!/usr/bin/env python3
"""Trains GPT-2 124M (bf16 autocast, random tokens, AdamW), at fixed or random shapes, and says how long
it took and what PyTorch itself held. Everything about memory is left to the environment.

    python3 tests/clients/torch_gpt2.py --shapes fixed --steps 50
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 LD_PRELOAD=… python3 tests/clients/torch_gpt2.py --shapes random

Fixed: batch x length in every step. Random: each step draws its own, up to these; the draws depend on
--seed alone. The warm-up is timed apart. With --deterministic the losses repeat to the digit, whatever
serves the memory; --losses prints them. The host never waits within the measured steps.

With --worker it obeys commands on stdin (worker.py); what it says first has "warm_up_s", too:

    block WARM STEPS   fixed shapes: WARM unmeasured steps, then STEPS measured ones -> {"ms": of a step}
    pass SEED STEPS    random shapes of this seed -> {"seconds": of all steps together}
    facts              what PyTorch counts
"""
import argparse
import contextlib
import json
import os
import random
import sys
import time

if "--deterministic" in sys.argv:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

import worker
from torch_steptime import GPT2

WARM_SHAPE = (1, 64)  # of random shapes: loads what every step needs, and little memory


def shapes_of(seed, steps, batch, length):
    """[(batch, length)] of a random pass, the same in every process."""
    source = random.Random(seed)
    return [(source.randint(1, batch), source.randint(min(64, length), length)) for _ in range(steps)]


class Training:
    def __init__(self, options):
        torch.manual_seed(options.seed)
        self.vocabulary = options.vocabulary
        self.model = GPT2(options.layers, options.width, options.heads, options.vocabulary,
                          options.length).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.fixed_shape = (options.batch, options.length)
        self.fixed_data = None
        self.deterministic = options.deterministic

    def data(self, shape):
        """Tokens and targets: new ones for each step of random shapes, the same for fixed ones."""
        if shape == "fixed":
            if self.fixed_data is None:
                self.fixed_data = self.data(self.fixed_shape)
            return self.fixed_data
        return tuple(torch.randint(self.vocabulary, shape, device="cuda") for _ in range(2))

    def attention(self):
        """Deterministic ways of attention only, where that is asked for."""
        if not self.deterministic:
            return contextlib.nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])

    def step(self, shape):
        tokens, targets = self.data(shape)
        with self.attention(), torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(tokens, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def timed(self, shapes, losses=None):
        """Runs a step for each shape; seconds from an idle GPU to an idle GPU."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for shape in shapes:
            loss = self.step(shape)
            if losses is not None:
                losses.append(loss)
        torch.cuda.synchronize()
        return time.perf_counter() - start


def facts():
    """What PyTorch counts (mostly nothing where its cache is off)."""
    stats = torch.cuda.memory_stats()
    return {"torch_allocated_peak": stats.get("allocated_bytes.all.peak", 0),
            "torch_reserved_peak": stats.get("reserved_bytes.all.peak", 0),
            "torch_ooms": stats.get("num_ooms", 0),
            "torch_retries": stats.get("num_alloc_retries", 0)}


def serve(training, options, warm_up_s):
    def block(warm, steps):
        training.timed(["fixed"] * int(warm))
        return {"ms": training.timed(["fixed"] * int(steps)) * 1e3 / int(steps)}

    def one_pass(seed, steps):
        return {"seconds": training.timed(shapes_of(int(seed), int(steps), options.batch,
                                                    options.length))}

    worker.serve({"block": block, "pass": one_pass, "facts": facts}, warm_up_s=warm_up_s)


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not at least 1")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", choices=("fixed", "random"), default="fixed")
    parser.add_argument("--steps", type=positive, default=37)
    parser.add_argument("--warm-up", type=int, default=None, metavar="N",
                        help="unmeasured steps before (fixed: 5; random: 2, of a tiny shape)")
    parser.add_argument("--passes", type=positive, default=1,
                        help="measure the steps so often, one after the other; random: each time with "
                        "the next seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=positive, default=12)
    parser.add_argument("--width", type=positive, default=768)
    parser.add_argument("--heads", type=positive, default=12)
    parser.add_argument("--vocabulary", type=positive, default=50257)
    parser.add_argument("--batch", type=positive, default=8)
    parser.add_argument("--length", type=positive, default=1024)
    worker.add_cpus(parser)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--losses", action="store_true", help="print every loss to the last digit")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--worker", action="store_true", help="obey commands on stdin, see above")
    options = parser.parse_args()
    worker.stay_on(options.cpus)
    if options.deterministic:
        torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = True

    start = time.perf_counter()
    training = Training(options)
    warm_up = options.warm_up
    if warm_up is None:
        warm_up = 5 if options.shapes == "fixed" else 2
    training.timed(["fixed" if options.shapes == "fixed" else WARM_SHAPE] * warm_up)
    warm_up_s = time.perf_counter() - start
    if options.worker:
        serve(training, options, warm_up_s)
        return

    seconds, losses = [], [] if options.losses else None
    for number in range(options.passes):
        shapes = ["fixed"] * options.steps if options.shapes == "fixed" else shapes_of(
            options.seed + number, options.steps, options.batch, options.length)
        seconds.append(training.timed(shapes, losses))
    found = {"shapes": options.shapes, "steps": options.steps, "warm_up_s": round(warm_up_s, 3),
             "seconds": [round(s, 4) for s in seconds],
             "ms_per_step": [round(s * 1e3 / options.steps, 3) for s in seconds], **facts()}
    if losses is not None:
        found["losses"] = [repr(loss.item()) for loss in losses]
    if options.json:
        print(json.dumps(found), flush=True)
        return
    for loss in found.pop("losses", []):
        print("loss", loss)
    print(f"{options.shapes} shapes, {options.steps} steps; model and {warm_up} warm-up steps took "
          f"{warm_up_s:.2f} s")
    for number, s in enumerate(seconds):
        print(f"pass {number}: {s:.3f} s, {s * 1e3 / options.steps:.2f} ms a step")
    print(f"PyTorch: allocated peak {found['torch_allocated_peak'] >> 20} MiB, reserved peak "
          f"{found['torch_reserved_peak'] >> 20} MiB, {found['torch_retries']} retries, "
          f"{found['torch_ooms']} out of memory", flush=True)


if __name__ == "__main__":
    main()
