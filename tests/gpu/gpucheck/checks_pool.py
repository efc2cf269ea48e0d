"""The pool by itself: what its calls cost beside the driver's own, host memory, reuse under stress."""
import json
import os
import statistics

from . import checks_conformance, checks_native, reports, stats, targets
from .core import compare_problems, parallel, report_problems
from .results import row
from .turns import Company

BACKINGS = ("vmm", "native")  # values of VRAMSHIM_BACKING
DRIVER = "driver"             # the same program without the shim
ROUNDS, BLOCKS = 16, 5
SIZES = (("4 KiB", 4 << 10), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20))
KERNELS = {"between": 500, "around": 500, "none": 2000}  # pairs in a block
NATIVE_PLAIN = "40 2"                                    # the driver's own are dear
LIVE, REPLACED = 20000, 200000
THREADS, THREAD_PAIRS = 8, 30000
SPIN_MS, SPINS = 100, 12

KERNEL_BOUND = 1.0       # × the driver's async pair around the same kernel
NONE_BOUND = 0.4         # × the driver's async pair, without a kernel
PLAIN_BOUND = 1 / 200    # × the driver's plain pair
THREADS_BOUND = 1 / 4    # time per pair of eight threads, × that of one
REPLACE_BOUND_NS = 400
BEHIND_BOUND_US = 10
HOST_BLOCKS, HOST_EACH, HOST_BASE = 200000, 128, 8 << 20


def environment(backing):
    return {"VRAMSHIM_STACKS": "off", "VRAMSHIM_BACKING": backing}


def bench_program(context):
    return checks_native.nvcc_program(context, "pool_bench_gpu", "pool_bench_gpu.cu", "-cudart", "static")


def plan(backings):
    """[(key, partner, command)] of one round. A key is (partner, what, variant)."""
    found = []
    for kernel, count in KERNELS.items():
        for label, size in SIZES:
            tail = f"{kernel} {size} {count} {BLOCKS}"
            found.append(((DRIVER, kernel, label), DRIVER, "pair async " + tail))
            if kernel == "none":
                found.append(((DRIVER, "plain", label), DRIVER,
                              f"pair plain none {size} {NATIVE_PLAIN}"))
            found += [((b, kernel, label), b, "pair plain " + tail) for b in backings]
    for b in backings:
        found += [((b, "threads", number), b, f"threads {number} {THREAD_PAIRS}")
                  for number in (1, THREADS)]
        found.append(((b, "replace", ""), b, f"replace {LIVE} {REPLACED}"))
    return found


def _ns(found, *key):
    return [answer["ns"] for answer in found[key]]


def _medians(found, *keys):
    return ", ".join(f"{key[2]} {statistics.median(_ns(found, *key)):.0f} ns" for key in keys)


def backing_rows(check, backing, found, behind, native_behind):
    """The rows of one backing, from answers in rounds: {key of plan(): [{"ns": …}]}."""
    rows = []
    for kernel, against, what, bound in (
            ("between", "between", "cudaMalloc + cudaFree, a tiny kernel between free and allocation, "
             "against cudaMallocAsync + cudaFreeAsync with it there", KERNEL_BOUND),
            ("around", "around", "the same, the kernel between allocation and free", KERNEL_BOUND),
            ("none", "none", "the same, without kernels", NONE_BOUND),
            ("none", "plain", "the same, against the driver's cudaMalloc + cudaFree", PLAIN_BOUND)):
        reached = [(label, stats.robust_ratio(_ns(found, DRIVER, against, label),
                                              _ns(found, backing, kernel, label)))
                   for label, _ in SIZES]
        hosts = {label: [round(statistics.median(a.get("host_ns", a["ns"]) for a in found[key]), 1)
                         for key in ((DRIVER, against, label), (backing, kernel, label))]
                 for label, _ in SIZES}
        rows.append(targets.at_most(
            check, f"{backing} backing: {what}",
            _medians(found, *[(DRIVER, against, label) for label, _ in SIZES]), reached, bound,
            shim=_medians(found, *[(backing, kernel, label) for label, _ in SIZES]),
            detail="until the last call returned, ns a pair, native and shim: " + json.dumps(hosts)))
    one, many = _ns(found, backing, "threads", 1), _ns(found, backing, "threads", THREADS)
    handed = statistics.median(a["handed"] for a in found[(backing, "threads", THREADS)])
    rows.append(targets.at_most(
        check, f"{backing} backing: {THREADS} threads, 512 B to 2 MiB, time per pair against one thread's",
        "", stats.robust_ratio(one, many), THREADS_BOUND,
        shim=f"1 thread {statistics.median(one):.0f} ns, {THREADS} threads {statistics.median(many):.0f} "
        f"ns, {statistics.median(a / b for a, b in zip(one, many)):.2f} × the throughput",
        detail=f"{handed / (THREADS * THREAD_PAIRS):.0%} of the blocks freed by another thread; "
        f"processors: {os.cpu_count()}"))
    native = ""
    if found.get((DRIVER, "replace", "")):
        native = f"{statistics.median(_ns(found, DRIVER, 'replace', '')):.0f} ns"
    rows.append(targets.at_most(
        check, f"{backing} backing: random replace among {LIVE} live blocks of 0.5 to 60 KiB, a pair",
        native, stats.median_interval(_ns(found, backing, "replace", "")), REPLACE_BOUND_NS,
        "{:.0f} ns".format))
    free = [answer["free_us"] for answer in behind]
    rows.append(targets.at_most(
        check, f"{backing} backing: free behind a {SPIN_MS} ms kernel on another stream",
        f"{statistics.median([a['free_us'] for a in native_behind]):.0f} µs" if native_behind else "?",
        stats.median_interval(free), BEHIND_BOUND_US, "{:.1f} µs".format,
        detail=f"each free, µs: {free}\nthe allocation after it, µs: "
        f"{[answer['alloc_us'] for answer in behind]}"))
    return rows


def pool_row(check, backing, report, why, what="its report"):
    """Was it the pool, with that backing, that served? backing None: any."""
    problems = [why] if report is None else reports.structure_problems(report)
    if not problems:
        problems = reports.backing_problems(report, backing)
    return row(check, f"{backing or 'default'} backing: {what}", "",
               problems[0] if problems else reports.pool_summary(report),
               "FAIL" if problems else "ok", "\n".join(problems))


def bench(context, check):
    path, why = bench_program(context)
    if path is None:
        return checks_native.build_failed(check, "the pool's calls", why)
    folder = context.folder("pool")
    paths = {b: os.path.join(folder, b + ".json") for b in BACKINGS}
    wanted = {DRIVER: ([path], False, None, None)}
    wanted.update({b: ([path], True, paths[b], environment(b)) for b in BACKINGS})
    company = Company(context, wanted)
    try:
        found = company.rounds(plan(BACKINGS), ROUNDS)
        found.update(company.rounds(
            [((DRIVER, "replace", ""), DRIVER, f"replace {LIVE} {REPLACED // 100}"),
             ((DRIVER, "threads", THREADS), DRIVER, f"threads {THREADS} 200")], 2))
        behind = company.rounds([(b, b, f"behind {SPIN_MS}") for b in BACKINGS], SPINS)
        behind.update(company.rounds([(DRIVER, DRIVER, f"behind {SPIN_MS}")], 3))
    finally:
        company.close()
    rows = []
    if DRIVER in company.failed:
        rows.append(targets.failed(check, "natively", company.failed[DRIVER]))
    for b in BACKINGS:
        if b in company.failed:
            rows.append(targets.failed(check, f"{b} backing", company.failed[b]))
        elif DRIVER not in company.failed:
            if b in company.ended:
                rows.append(targets.failed(check, f"{b} backing: its end", company.ended[b]))
            rows += backing_rows(check, b, found, behind[b], behind[DRIVER])
            rows.append(pool_row(check, b, *reports.load(paths[b])))
    return rows


def host(context, check):
    """What a live allocation costs in host memory."""
    path, why = bench_program(context)
    if path is None:
        return checks_native.build_failed(check, "host memory", why)
    folder = context.folder("pool-host")

    def one(backing, count):
        return context.run([path, "host", str(count)],
                           environment(backing) if backing else None, 120, None, bool(backing),
                           os.path.join(folder, f"{backing}.json") if backing else None)

    native, *shimmed = parallel([lambda: one(None, HOST_BLOCKS // 10)]
                                + [lambda b=b: one(b, HOST_BLOCKS) for b in BACKINGS])
    per = _growth(native)
    text = f"{per['growth'] / (HOST_BLOCKS // 10):.0f} B each (the driver's own)" if per else "?"
    rows = []
    for b, result in zip(BACKINGS, shimmed):
        what = f"{b} backing: resident host memory of {HOST_BLOCKS} live blocks"
        found = _growth(result)
        if found is None:
            rows.append(targets.failed(check, what, f"{result.failure() or 'no answer'}\n"
                                       f"{result.tail()}"))
            continue
        bound = HOST_EACH * HOST_BLOCKS + HOST_BASE
        rows.append(targets.at_most(
            check, what, text, targets.exactly(found["growth"]), bound, reports.bytes_text,
            shim=f"{found['second_half'] * 2 / HOST_BLOCKS:.0f} B each in the second half",
            detail=f"target: {HOST_EACH} B each and {reports.bytes_text(HOST_BASE)}"))
    return rows


def _growth(result):
    try:
        found = json.loads(result.out.splitlines()[-1])
        return found if not result.failure() and found["growth"] >= 0 else None
    except (IndexError, KeyError, ValueError):
        return None


# Natively for as long as in the test suite, a third to a sixth of it: what it prints is the same.
REUSE_ROUNDS = {"reuse_stress": 300, "stream_reuse": 240}


def reuse(context, check, program="reuse_stress"):
    """A reuse stress of the conformance programs, for longer."""
    path, rounds = os.path.join(context.build, "tests", "conformance", program), REUSE_ROUNDS[program]
    if not os.path.exists(path):
        return [row(check, program, "", "", "skip", f"{program} is not in the build")]
    folder = context.folder("reuse")

    def one(backing, seed):
        report = os.path.join(folder, f"{backing}-{seed}.json") if backing else None
        env = {**checks_conformance.environment(context, "gpu"), "REUSE_SEED": str(seed)}
        if backing:
            env.update(REUSE_ROUNDS=str(rounds), VRAMSHIM_BACKING=backing)
        return context.run([path], env, 150, None, bool(backing), report)

    ways = [(b, seed) for b in BACKINGS for seed in (1, 2)]
    native, *shimmed = parallel([lambda: one(None, 1)] + [lambda w=w: one(*w) for w in ways])
    rows = []
    for (b, seed), result in zip(ways, shimmed):
        problems = compare_problems(native, result) + report_problems(result)
        if not problems:
            problems = reports.backing_problems(result.report, b)
        elif result.err:
            problems.append(f"it said which call failed:\n{result.err[-700:]}")
        rows.append(row(check, f"{program}, {b} backing, seed {seed}, {rounds} rounds",
                        f"{len(native.out.splitlines())} facts, {native.seconds:.0f} s",
                        problems[0].splitlines()[0] if problems else
                        f"same, {result.seconds:.0f} s; {reports.pool_summary(result.report)}",
                        "FAIL" if problems else "ok", "\n".join(problems)))
    return rows
