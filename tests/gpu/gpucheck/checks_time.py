"""Checks of time. They run alone, native and shimmed turns interleaved, so that drift hits both."""
import json
import os
import re
import statistics
import time

from . import checks_native, machine, reports, stats
from .core import PYTHON, report_problems, tool
from .results import row
from .turns import Partner, turns

STEP_PAIRS, STEP_WARM, STEP_STEPS = 20, 1, 12
STEP_BATCH = 16  # so that the GPU is the one that is waited for, not a host that others share
MICRO_PAIRS = 16
STEP_BOUND = 1.005    # a training step, with shim / native
PAIR_ADDED_NS = 150   # a counted allocation and its free, over the driver's own
START_ADDED_US = 100  # a process that never uses CUDA, over the same with an empty library preloaded


def step_rows(check, found, detail=""):
    """The rows of a step-time measurement: shim against native, and native against native."""
    native, shim = statistics.median(found["native"]), statistics.median(found["shim"])
    ratio, low, high = stats.robust_ratio(found["native"], found["shim"])
    control = stats.robust_ratio(found["native"], found["control"])
    return [
        row(check, f"GPT-2 124M training step, {STEP_BATCH} x 1024 tokens, {len(found['native'])} interleaved "
            "pairs",
            f"{native:.2f} ms", f"{shim:.2f} ms, ratio {ratio:.4f} (95%: {low:.4f}–{high:.4f}), "
            f"at most {STEP_BOUND}", stats.within(low, high, STEP_BOUND), detail),
        row(check, "the same, native against native (what processes differ by anyhow)",
            f"{native:.2f} ms", f"{statistics.median(found['control']):.2f} ms, ratio "
            f"{control[0]:.4f} (95%: {control[1]:.4f}–{control[2]:.4f})", "info")]


def step_time(context, check):
    what = "GPT-2 124M training step"
    if not machine.has("torch"):
        return [row(check, what, "", "", "skip", "torch is not installed")]
    argv = [PYTHON, os.path.join(context.clients, "torch_steptime.py"), "--cpus", "4",
            "--batch", str(STEP_BATCH)]
    report = os.path.join(context.folder("step-time"), "report.json")
    partners = {"native": Partner(context, argv, False), "shim": Partner(context, argv, True, report),
                "control": Partner(context, argv, False)}
    try:
        for partner in partners.values():
            partner.answer(context.left(180))
        block = f"block {STEP_WARM} {STEP_STEPS}"
        found = turns(partners, STEP_PAIRS, lambda p: p.ask(block, context.left(60))["ms"])
        facts = {name: p.ask("facts", 30) for name, p in partners.items()}
    except (RuntimeError, OSError, ValueError) as error:
        return [row(check, what, "", "", "FAIL", str(error))]
    finally:
        for partner in partners.values():
            partner.close()
    detail = (f"blocks of {STEP_STEPS} steps, ms a step: " + json.dumps(
        {name: [round(v, 3) for v in values] for name, values in found.items()})
        + f"\nPyTorch {json.dumps(facts)}")
    rows = step_rows(check, found, detail)
    loaded, why = reports.load(report)
    problems = [why] if loaded is None else reports.structure_problems(loaded)
    peak = facts["shim"]["reserved_peak"]
    if not problems and not 0 <= reports.counts(loaded)["peak_bytes"] - peak <= 256 << 20:
        problems.append(f"peak {reports.counts(loaded)['peak_bytes']}, PyTorch's {peak}")
    rows.append(row(check, "its report", f"PyTorch reserved {reports.bytes_text(peak)}",
                    problems[0] if problems else reports.summary(loaded),
                    "FAIL" if problems else "ok", "\n".join(problems)))
    return rows


def _numbers(text):
    return {name: float(value) for name, value in re.findall(r"^(.+): ([0-9.]+)$", text, re.M)}


ALONE = ", the driver alone"


def micro_rows(check, native, shim):
    """From lists of {name: ns}, one for each process, in pairs. What the client measured both ways in
    one process, with the shim and past it, is compared there; the rest from process to process."""
    rows = []
    for name in native[0]:
        if name.endswith(ALONE):
            continue
        b = [s[name] for s in shim]
        a = [s[name + ALONE] for s in shim] if name + ALONE in shim[0] else [n[name] for n in native]
        added, low, high = stats.paired_difference(a, b)
        # On the simulated driver a plain pair is as cheap as an ordered one, and 1% of it nothing.
        dear = name.startswith("pair") and statistics.median(a) > 5000
        bound = PAIR_ADDED_NS if "pair" in name else None
        if dear:
            ratio, ratio_low, ratio_high = stats.robust_ratio(a, b)
            verdict = stats.within(ratio_low, ratio_high, 1.01)
            text = f"ratio {ratio:.4f} ({ratio_low:.4f}–{ratio_high:.4f}), at most 1.01"
        else:
            verdict = stats.within(low, high, bound) if bound else "info"
            text = f"added {added:.1f} ns ({low:.1f}–{high:.1f})" + (
                f", at most {bound}" if bound else "")
        rows.append(row(check, f"cost of one call: {name}", f"{statistics.median(a):.1f} ns",
                        f"{statistics.median(b):.1f} ns, {text}", verdict))
    return rows


def micro(context, check):
    path, why = checks_native.driver_program(context, "micro_alloc", "micro_alloc.c")
    if path is None:
        return [row(check, "cost of one call", "", "", "skip" if why.startswith("no ") else "FAIL",
                    why)]
    found = {False: [], True: []}
    for number in range(MICRO_PAIRS):
        for shim in (False, True) if number % 2 == 0 else (True, False):
            report = os.path.join(context.folder("micro"), "report.json") if shim else None
            result = context.run([path, "11"], timeout=60, shim=shim, report=report)
            failure = result.failure() or (shim and "; ".join(report_problems(result)))
            if failure:
                return [row(check, "cost of one call", "", "", "FAIL",
                            f"{'with shim' if shim else 'native'}: {failure}\n{result.tail()}")]
            found[shim].append(_numbers(result.out))
    return micro_rows(check, found[False], found[True])


def _start_us(argv, env):
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env)
    os.waitpid(pid, 0)
    return (time.perf_counter() - start) * 1e6


def start(context, check):
    """Process start without the shim, with an empty library preloaded, and with the shim."""
    source = os.path.join(context.folder("empty"), "empty.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("int vs_gpu_check_empty;\n")
    empty, why = context.build_once("libempty.so", [tool("cc") or tool("gcc") or "cc", "-shared",
                                                    "-fPIC", source])
    if empty is None:
        return [row(check, "process start", "", "", "skip", why)]
    plain = context.environment()
    preloads = {"native": plain, "empty": {**plain, "LD_PRELOAD": empty},
                "shim": context.environment(shim=True, report="none")}
    rows = []
    for name, argv, rounds, size in (("true", [tool("true")], 40, 10),
                                     ("python3 -c pass", [PYTHON, "-c", "pass"], 40, 3)):
        found = {way: [] for way in preloads}
        for number in range(rounds):
            ways = list(preloads) if number % 2 == 0 else list(reversed(preloads))
            for way in ways:
                found[way].append(min(_start_us(argv, preloads[way]) for _ in range(size)))
        added, low, high = stats.paired_difference(found["empty"], found["shim"])
        whole = stats.paired_difference(found["native"], found["shim"])
        medians = {way: statistics.median(values) for way, values in found.items()}
        rows.append(row(
            check, f"process start: {name}",
            f"{medians['native']:.0f} µs; empty library {medians['empty']:.0f} µs",
            f"{medians['shim']:.0f} µs, added {whole[0]:.0f} µs; over an empty library {added:.0f} µs "
            f"({low:.0f}–{high:.0f}), at most {START_ADDED_US}",
            stats.within(low, high, START_ADDED_US)))
    return rows
