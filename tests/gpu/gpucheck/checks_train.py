"""The pool under PyTorch and CuPy, with their own caches off or with stream-ordered memory, against these
caches."""
import json
import os
import statistics
from typing import NamedTuple

from . import machine, reports, stats, targets
from .checks_frameworks import TORCH_ASYNC
from .checks_pool import BACKINGS, pool_row
from .core import PYTHON, parallel, report_problems, shim_noise
from .results import row
from .turns import Company

NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
FIXED_PAIRS, FIXED_BLOCK = 16, "block 1 10"
AT = 1.10                                   # × the live peak: the time with that much memory, too
RANDOM_STEPS, RANDOM_SEEDS = 37, (1, 2)     # the first pass of a process, and a later one
RANDOM_PROCESSES = {"vmm": 3, "native": 1}  # against three with PyTorch's cache; all must fit the GPU
CAP_STEPS = {"fixed": 8, "random": 37}
CAP_OVER = 1.03
LOOP_PAIRS = 20

STREAMS_BOUND, CUPY_BOUND = 1.10, 1.02


class Mode(NamedTuple):
    """How PyTorch is set under the shim, and what GPT-2 has to reach then: × the time of PyTorch's own
    cache, and reserved memory × the live peak."""

    what: str
    env: dict
    fixed: float
    fixed_reserved: float
    random: float
    random_reserved: float


CACHE_OFF = Mode("PyTorch's cache off", NO_CACHE, 1.02, 1.07, 0.97, 1.05)
ORDERED = Mode("PyTorch's cudaMallocAsync backend", TORCH_ASYNC, 1.00, 1.07, 0.90, 1.04)
DRIVER = "driver"  # what the pool serves, served by the driver


def client(context, name, *more):
    return [PYTHON, os.path.join(context.clients, name), *more]


def missing(check, what, package):
    return [row(check, what, "", "", "skip", f"Python package {package} is not installed")]


def _wanted(context, argv, folder, backing=None, number=0, env=None):
    """(a partner for Company, the path of its report): the framework's own cache where backing is
    None, else none and the shim with this backing."""
    if backing is None:
        return (argv, False, None, None), None
    path = os.path.join(folder, f"{backing}-{number}.json")
    return (argv, True, path, {**(env or {}), "VRAMSHIM_BACKING": backing}), path


def reserved_row(check, what, loaded, bound, native="", detail=""):
    """loaded: [(report, why not)] of one or several processes; the worst counts."""
    found, problems = [], []
    for report, why in loaded:
        bad = [why] if report is None else reports.structure_problems(report)
        live, reserved = (0, 0) if bad else reports.peaks(report)
        if not bad and (not live or not reserved):
            bad = [f"live peak {live}, reserved peak {reserved}"]
        problems += bad
        if not bad:
            found.append((reserved / live, live, reserved, report))
    if problems or not found:
        return targets.failed(check, what, "\n".join(problems) or "no report")
    ratio, live, reserved, report = max(found, key=lambda f: f[0])
    return targets.at_most(
        check, what, native, targets.exactly(ratio), bound, shim=f"live peak {reports.bytes_text(live)}, "
        f"reserved {reports.bytes_text(reserved)}",
        detail="\n".join([detail] * bool(detail) + [reports.pool_summary(f[3]) for f in found]))


def _failures(check, what, company, names):
    return ([targets.failed(check, f"{what}: {name}", company.failed[name])
             for name in names if name in company.failed]
            + [targets.failed(check, f"{what}: the end of {name}", company.ended[name])
               for name in names if name in company.ended])


def _cache_text(facts):
    if not facts or not facts.get("torch_allocated_peak"):
        return "?"
    live, reserved = facts["torch_allocated_peak"], facts["torch_reserved_peak"]
    return (f"PyTorch's cache: live {reports.bytes_text(live)}, reserved "
            f"{reports.bytes_text(reserved)}, {reserved / live:.3f}")


def _ms(values):
    return f"{statistics.median(values):.2f} ms"


def gpt2_fixed(context, check, mode=CACHE_OFF):
    what = f"GPT-2 124M, 8 x 1024, {mode.what}"
    if not machine.has("torch"):
        return missing(check, what, "torch")
    folder, argv = context.folder(check), client(context, "torch_gpt2.py", "--worker", "--cpus",
                                                         "4")
    wanted, paths = {"cache": _wanted(context, argv, folder)[0]}, {}
    for b in BACKINGS:
        # No decay: a training does not stand still for seconds as these do between their turns.
        wanted[b], paths[b] = _wanted(context, argv, folder, b,
                                      env={**mode.env, "VRAMSHIM_POOL_DECAY_MS": "-1"})
    if mode is ORDERED:
        wanted[DRIVER] = argv, False, None, mode.env
    company = Company(context, wanted, 180)
    try:
        # One more, which holds AT × what PyTorch had live in its warm-up from the first use on.
        live = (company.ask("cache", "facts") or {}).get("torch_allocated_peak") or 0
        if live:
            wanted["roomy"], paths["roomy"] = _wanted(
                context, argv, folder, BACKINGS[0], "roomy",
                {**mode.env, "VRAMSHIM_POOL_DECAY_MS": "-1",
                 "VRAMSHIM_POOL_SIZE": str(int(live * AT))})
            company.start({"roomy": wanted["roomy"]}, 180)
        found = company.rounds([(name, name, FIXED_BLOCK) for name in wanted], FIXED_PAIRS)
        facts = {name: company.ask(name, "facts") for name in wanted}
    finally:
        company.close()
    found = {name: [answer["ms"] for answer in answers] for name, answers in found.items()}
    rows = _failures(check, what, company, wanted)
    detail = json.dumps({"ms a step": {n: [round(v, 2) for v in values] for n, values in found.items()},
                         "PyTorch": facts})
    for b in BACKINGS:
        if "cache" in company.failed or b in company.failed:
            continue
        rows.append(targets.at_most(
            check, f"{what}, {b} backing: step time against PyTorch's cache", _ms(found["cache"]),
            stats.robust_ratio(found["cache"], found[b]), mode.fixed, shim=_ms(found[b]),
            detail=detail))
        loaded = reports.load(paths[b])
        rows.append(reserved_row(check, f"{what}, {b} backing: reserved against the live peak", [loaded],
                                 mode.fixed_reserved, _cache_text(facts["cache"])))
        rows.append(pool_row(check, b, *loaded, what=f"{what}, its report"))
    if DRIVER in wanted and not {"cache", DRIVER} & set(company.failed):
        rows.append(targets.at_most(
            check, f"{what}: step time with the driver's own pool", _ms(found["cache"]),
            stats.robust_ratio(found["cache"], found[DRIVER]), None, shim=_ms(found[DRIVER])))
    if "roomy" in wanted and not {"cache", "roomy"} & set(company.failed):
        report, _ = reports.load(paths["roomy"])
        peaks = reports.peaks(report) if report else (0, 0)
        rows.append(targets.at_most(
            check, f"{what}, {BACKINGS[0]} backing: step time at {AT:.2f} × the live peak (POOL_SIZE)",
            _ms(found["cache"]), stats.robust_ratio(found["cache"], found["roomy"]), None,
            shim=f"{_ms(found['roomy'])}, reserved {peaks[1] / peaks[0] if peaks[0] else 0:.3f} × live"))
    rows.append(_warm_row(check, what, company, wanted))
    return rows


def _warm_row(check, what, company, names):
    """How long the model and the warm-up took, which the figures leave out."""
    texts = {name: f"{company.ready[name]['warm_up_s']:.1f} s" for name in names
             if name in company.ready}
    native = ", ".join(text for name, text in texts.items() if name.startswith("cache"))
    shim = ", ".join(f"{name} {text}" for name, text in texts.items() if not name.startswith("cache"))
    return row(check, f"{what}: the model and the warm-up, not in the figures (all at once)", native,
               shim, "info")


def random_plan(processes):
    """Names of the processes in the order of their turns: cache and pool side by side, first one and
    then the other."""
    order = []
    for number in range(max(processes.values())):
        group = [f"cache {number}"] + [f"{b} {number}" for b, count in processes.items()
                                       if number < count]
        order += group if number % 2 == 0 else reversed(group)
    return order


def gpt2_random(context, check, mode=CACHE_OFF):
    what = f"GPT-2 124M, random shapes, {RANDOM_STEPS} steps, {mode.what}"
    if not machine.has("torch"):
        return missing(check, what, "torch")
    folder = context.folder(check)
    argv = client(context, "torch_gpt2.py", "--worker", "--cpus", "4", "--shapes", "random")
    order, wanted, paths = random_plan(RANDOM_PROCESSES), {}, {}
    for name in order:
        kind, number = name.split()
        # Between its turns a process is idle for long, as no training is: nothing decays.
        wanted[name], paths[name] = _wanted(context, argv, folder, None if kind == "cache" else kind,
                                            number, {**mode.env, "VRAMSHIM_POOL_DECAY_MS": "-1"})
    company, seconds = Company(context, wanted, 240), {name: [] for name in order}
    try:
        for number, seed in enumerate(RANDOM_SEEDS):
            for name in order if number % 2 == 0 else reversed(order):
                answer = company.ask(name, f"pass {seed} {RANDOM_STEPS}", 120)
                if answer:
                    seconds[name].append(answer["seconds"])
        facts = {name: company.ask(name, "facts") for name in order}
    finally:
        company.close()
    rows = _failures(check, what, company, order)
    detail = json.dumps({"seconds of each pass": {n: [round(v, 3) for v in values]
                                                  for n, values in seconds.items()}, "PyTorch": facts})
    for b, count in RANDOM_PROCESSES.items():
        names = [f"{b} {number}" for number in range(count)]
        if any(name in company.failed for name in names + [f"cache {n}" for n in range(count)]):
            continue
        for number, label in enumerate(("first pass", "a later pass")):
            rows.append(random_row(check, f"{what}, {b} backing: total time of the {label}"
                                   if number == 0 else f"the same, {label}",
                                   [seconds[f"cache {n}"][number] for n in range(count)],
                                   [seconds[name][number] for name in names],
                                   mode.random if number == 0 else None, detail if number == 0 else ""))
        loaded = [reports.load(paths[name]) for name in names]
        rows.append(reserved_row(check, f"{what}, {b} backing: reserved against the live peak", loaded,
                                 mode.random_reserved, _cache_text(facts["cache 0"])))
        rows.append(pool_row(check, b, *loaded[0], what=f"{what}, its report"))
    rows.append(_warm_row(check, what, company, order))
    return rows


def gpt2_fixed_async(context, check):
    return gpt2_fixed(context, check, ORDERED)


def gpt2_random_async(context, check):
    return gpt2_random(context, check, ORDERED)


def random_row(check, what, cache, pool, bound, detail):
    """Three pairs have an interval; one pair is a number without a bound."""
    if len(cache) >= 3:
        reached = stats.paired_ratio(cache, pool)
    else:
        reached, bound = targets.exactly(sum(pool) / sum(cache)), None
    return targets.at_most(check, what, ", ".join(f"{s:.2f} s" for s in cache), reached, bound,
                           shim=", ".join(f"{s:.2f} s" for s in pool), detail=detail)


def _said(result):
    """The client's JSON, or None."""
    try:
        return json.loads(result.out.splitlines()[-1])
    except (IndexError, ValueError):
        return None


def cap_problems(cached, capped, limit):
    """What is wrong with a run under a cap: results of the client natively with PyTorch's cache, and
    without it under the shim."""
    problems = []
    for name, result in (("with PyTorch's cache", cached), ("under the cap", capped)):
        failure = result.failure()
        if failure or _said(result) is None:
            problems.append(f"{name}: {failure or 'no answer'}\n{result.tail()}")
    if problems:
        return problems
    losses = [_said(result)["losses"] for result in (cached, capped)]
    if not losses[0] or losses[0] != losses[1]:
        first = next((i for i, (a, b) in enumerate(zip(*losses)) if a != b), None)
        problems.append(f"losses differ from step {first} on" if first is not None
                        else f"{len(losses[0])} losses, {len(losses[1])} under the cap")
    problems += report_problems(capped) + shim_noise(capped.err)
    if capped.report is not None and not problems:
        found = reports.counts(capped.report)
        if found["failed_count"] or capped.report.get("ooms"):
            problems.append(f"{found['failed_count']} calls failed, out of memory: "
                            f"{capped.report.get('ooms')}")
        device = capped.report["devices"][0]
        if device.get("limit_bytes") != limit:
            problems.append(f"the report's limit is {device.get('limit_bytes')}, set was {limit}")
        if device["used"].get("peak_bytes", 0) > limit:
            problems.append(f"used {device['used']['peak_bytes']}, more than the limit {limit}")
    return problems


def gpt2_cap(context, check):
    title = "GPT-2 124M, deterministic, cap of live peak + 3%"
    if not machine.has("torch"):
        return missing(check, title, "torch")
    folder = context.folder("gpt2-cap")
    settings = {**NO_CACHE, "VRAMSHIM_BACKING": "vmm", "VRAMSHIM_COUNT_CONTEXT": "off"}

    def run(shapes, name, shim, env):
        argv = client(context, "torch_gpt2.py", "--shapes", shapes, "--steps", str(CAP_STEPS[shapes]),
                       "--deterministic", "--losses", "--json")
        return context.run(argv, env, 200, None, shim,
                           os.path.join(folder, f"{shapes}-{name}.json") if shim else None)

    def one(shapes):
        what = f"{title}: {shapes} shapes, {CAP_STEPS[shapes]} steps"
        cached, free = parallel([lambda: run(shapes, "cached", False, {}),
                                 lambda: run(shapes, "free", True, settings)])
        if free.failure() or free.report is None:
            return row(check, what, "", "no run without a cap to measure the live peak", "FAIL",
                       f"{free.failure() or free.report_error}\n{free.tail()}")
        live, reserved = reports.peaks(free.report)
        limit = int(live * CAP_OVER)
        capped = run(shapes, "capped", True, {**settings, "VRAMSHIM_LIMIT": str(limit)})
        problems = cap_problems(cached, capped, limit)
        detail = (f"without a cap: live peak {live}, reserved {reserved}; limit {limit}\n"
                  + (reports.pool_summary(capped.report) if capped.report else "no report"))
        if free.report and _said(free) and _said(cached) and \
                _said(free)["losses"] != _said(cached)["losses"]:
            detail += "\nthe losses without a cap differ from those with PyTorch's cache, too"
        times = [f"{_said(r)['seconds'][0]:.2f} s" if _said(r) else "?" for r in (cached, free, capped)]
        return row(check, what, times[0],
                   problems[0].splitlines()[0] if problems else
                   f"same losses; {times[1]} without, {times[2]} with the cap of "
                   f"{reports.bytes_text(limit)}", "FAIL" if problems else "ok",
                   "\n".join(problems + [detail]))

    return parallel([lambda s=shapes: one(s) for shapes in CAP_STEPS])


def loop_rows(context, check, what, own, served, commands, driver=False, reserved=None):
    """A client that runs the same block with a framework's own cache and with memory that the pool serves.

    own, served: (arguments, environment). commands: {label: (command, bound or None)}, × the time of its
    own cache. driver: compare with the driver's serving the same, too. reserved: the highest ratio of
    reserved to live memory, from the report's live peak and what the client says of its own cache
    ("facts")."""
    folder, paths = context.folder(check), {}
    wanted = {"cache": (own[0], False, None, own[1])}
    against = {"cache": "its own cache"}
    if driver:
        wanted[DRIVER] = served[0], False, None, served[1]
        against[DRIVER] = "the driver's own pool"
    for b in BACKINGS:
        wanted[b], paths[b] = _wanted(context, served[0], folder, b, env=served[1])
    company = Company(context, wanted, 180)
    try:
        found = company.rounds([((name, label), name, command) for label, (command, _) in commands.items()
                                for name in wanted], LOOP_PAIRS)
        facts = company.ask("cache", "facts") if reserved else None
    finally:
        company.close()
    rows = _failures(check, what, company, wanted)
    for b in BACKINGS:
        for label, (_, limit) in commands.items():
            for name, text in against.items():
                if not {name, b} & set(company.failed):
                    rows += _loop_row(check, f"{what}{label}, {b} backing: time against {text}",
                                      found[(name, label)], found[(b, label)], limit)
        if b in company.failed:
            continue
        report, why = reports.load(paths[b])
        if reserved and facts:
            bound = reserved(reports.peaks(report)[0], facts) if report else None
            rows.append(reserved_row(check, f"{what}, {b} backing: reserved against the live peak",
                                     [(report, why)], bound, _cache_text(facts)))
        rows.append(pool_row(check, b, report, why, what=f"{what}, its report"))
    return rows


def _loop_row(check, what, one, other, limit):
    """Two clients' answers to the same commands: the same sums, and the time."""
    rows, times = [], [[answer["ms"] for answer in answers] for answers in (one, other)]
    sums = {answer["sum"] for answers in (one, other) for answer in answers}
    if len(sums) != 1:
        rows.append(targets.failed(check, what, f"the results differ: {sorted(sums)}"))
    rows.append(targets.at_most(
        check, what, _ms(times[0]), stats.robust_ratio(*times), limit, shim=_ms(times[1]),
        detail=json.dumps([[round(v, 3) for v in values] for values in times])))
    return rows


def streams(context, check):
    what = "PyTorch on eight busy streams, its cache off"
    if not machine.has("torch"):
        return missing(check, what, "torch")
    argv = client(context, "torch_streams.py", "--cpus", "4")
    return loop_rows(context, check, what, (argv, None), (argv, NO_CACHE),
                     {"": ("block 100", STREAMS_BOUND)})


def cupy_loop(context, check):
    what = "CuPy without its pool"
    if not machine.has("cupy"):
        return missing(check, what, "cupy")
    argv = client(context, "cupy_loop.py", "--cpus", "4", "--pool")
    return loop_rows(context, check, what, (argv + ["default"], None), (argv + ["none"], None),
                     {", matrices of 256 to 2048 rows": ("block mixed 60", CUPY_BOUND),
                      ", of 256 rows only": ("block small 100", None)})


def record_traces(context, folder):
    """Writes the allocation traces of two trainings into a folder; problems, or none."""
    os.makedirs(folder, exist_ok=True)
    problems = []
    for shapes in ("fixed", "random"):
        path = os.path.join(os.path.abspath(folder), f"gpt2-{shapes}.csv.gz")
        result = context.run(client(context, "torch_trace.py", "--shapes", shapes, "--out", path),
                             timeout=120)
        if result.failure():
            problems.append(f"{shapes}: {result.failure()}\n{result.tail()}")
        else:
            print(result.out.strip(), flush=True)
    return problems
