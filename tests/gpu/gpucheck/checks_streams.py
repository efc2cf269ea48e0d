"""Stream-ordered memory from the pool: what its calls cost, frameworks that ask for it, graphs, and what
they are told of it."""
import json
import os
import statistics

from . import checks_frameworks, checks_native, checks_pool, machine, reports, stats, targets
from .checks_pool import BACKINGS, DRIVER, KERNELS, SIZES
from .checks_train import client, loop_rows, missing
from .core import compare_problems, parallel, report_problems
from .results import row
from .turns import Company

PAIR_BOUND = 0.4      # × the driver's pair, and beside a kernel × what the driver's pair adds to it
KERNEL_BOUND = 1.0    # × the driver's pair with the kernel
PREFETCH_BOUND, CUPY_BOUND, JAX_BOUND, SHAPES_BOUND = 1.02, 1.00, 1.00, 1.00
SHAPES = {"kv": "a growing cache of keys and values", "bert": "an encoder on a ladder of lengths",
          "cnn": "a small convolutional net", "two": "two models by turns"}
NEAR, NEAR_BYTES = 1.05, 4 << 20  # figures that frameworks are told: × native, and so much more

# ---- the calls ------------------------------------------------------------------------------------


def pair_plan(backings):
    """[(key, partner, command)] of one round; a key is (partner, kernel, size's label), the kernel alone is
    ("alone", kernel, "")."""
    found = []
    for kernel, count in KERNELS.items():
        if kernel != "none":
            found.append((("alone", kernel, ""), DRIVER,
                          f"pair nothing {kernel} 4096 {count} {checks_pool.BLOCKS}"))
        for label, size in SIZES:
            tail = f"pair async {kernel} {size} {count} {checks_pool.BLOCKS}"
            found += [((name, kernel, label), name, tail) for name in (DRIVER, *backings)]
    return found


def _ns(found, *key):
    return [answer["ns"] for answer in found[key]]


def added(found, partner, kernel, label):
    """What the pair adds to its kernel, a round; at least a nanosecond, so that there are ratios."""
    return [max(1.0, whole - alone) for whole, alone in zip(_ns(found, partner, kernel, label),
                                                            _ns(found, "alone", kernel, ""))]


def pair_rows(check, backing, found):
    """The rows of one backing, from answers in rounds: {key of pair_plan(): [{"ns": …}]}."""
    rows = []
    for kernel, what, bound in (
            ("none", "cudaMallocAsync + cudaFreeAsync on one stream", PAIR_BOUND),
            ("between", "the same, a tiny kernel between free and allocation", KERNEL_BOUND),
            ("around", "the same, the kernel between allocation and free", KERNEL_BOUND)):
        def medians(name, kernel=kernel):
            return ", ".join(f"{label} {statistics.median(_ns(found, name, kernel, label)):.0f} ns"
                             for label, _ in SIZES)

        reached = [(label, stats.robust_ratio(_ns(found, DRIVER, kernel, label),
                                              _ns(found, backing, kernel, label))) for label, _ in SIZES]
        rows.append(targets.at_most(check, f"{backing} backing: {what}", medians(DRIVER), reached, bound,
                                    shim=medians(backing)))
        if kernel == "none":
            continue
        both = {name: {label: added(found, name, kernel, label) for label, _ in SIZES}
                for name in (DRIVER, backing)}
        texts = {name: ", ".join(f"{label} {statistics.median(values):.0f} ns"
                                 for label, values in figures.items()) for name, figures in both.items()}
        rows.append(targets.at_most(
            check, f"{backing} backing: what it adds to the kernel alone", texts[DRIVER],
            [(label, stats.robust_ratio(both[DRIVER][label], both[backing][label])) for label, _ in SIZES],
            PAIR_BOUND, shim=texts[backing]))
    return rows


def pairs(context, check):
    path, why = checks_pool.bench_program(context)
    if path is None:
        return checks_native.build_failed(check, "stream-ordered calls", why)
    folder = context.folder(check)
    paths = {b: os.path.join(folder, b + ".json") for b in BACKINGS}
    wanted = {DRIVER: ([path], False, None, None)}
    wanted.update({b: ([path], True, paths[b], checks_pool.environment(b)) for b in BACKINGS})
    company = Company(context, wanted)
    try:
        found = company.rounds(pair_plan(BACKINGS), checks_pool.ROUNDS)
    finally:
        company.close()
    rows = [targets.failed(check, name, why) for name, why in {**company.failed, **company.ended}.items()]
    for b in BACKINGS:
        if not {DRIVER, b} & set(company.failed):
            rows += pair_rows(check, b, found)
            rows.append(served_row(check, b, *reports.load(paths[b])))
    return rows


def served_row(check, backing, report, why, what="its report"):
    """As of plain memory, and none of it was the driver's."""
    found = checks_pool.pool_row(check, backing, report, why, what)
    problems = checks_frameworks.ordered_problems(report) if found["verdict"] == "ok" else []
    return {**found, "shim": problems[0], "verdict": "FAIL"} if problems else found


def stress(context, check):
    return checks_pool.reuse(context, check, "stream_reuse")


# ---- frameworks, by time --------------------------------------------------------------------------
def prefetch(context, check):
    what = "PyTorch on eight busy streams with a side stream that copies, cudaMallocAsync backend"
    if not machine.has("torch"):
        return missing(check, what, "torch")
    argv = client(context, "torch_streams.py", "--prefetch", "--cpus", "4")
    return loop_rows(context, check, what, (argv, None), (argv, checks_frameworks.TORCH_ASYNC),
                     {"": ("block 60", PREFETCH_BOUND)}, driver=True)


def reserved_bound(live, cache):
    """As much less than PyTorch's cache, or as near to what lives, whichever is more."""
    return max(0.95 * cache.get("torch_reserved_peak", 0) / live, 1.04) if live else 1.04


def shapes(context, check):
    if not machine.has("torch"):
        return missing(check, "PyTorch, sizes that change", "torch")
    rows = []
    for work, name in SHAPES.items():
        argv = client(context, "torch_shapes.py", "--work", work, "--cpus", "4")
        rows += loop_rows(context, check, f"PyTorch's cudaMallocAsync backend, {name}", (argv, None),
                          (argv, checks_frameworks.TORCH_ASYNC), {"": ("block 1", SHAPES_BOUND)},
                          reserved=reserved_bound)
    return rows


def cupy(context, check):
    what = "CuPy's MemoryAsyncPool"
    if not machine.has("cupy"):
        return missing(check, what, "cupy")
    argv = client(context, "cupy_loop.py", "--cpus", "4", "--pool")
    return loop_rows(context, check, what, (argv + ["default"], None), (argv + ["async"], None),
                     {", matrices of 256 to 2048 rows": ("block mixed 60", CUPY_BOUND),
                      ", of 256 rows only": ("block small 100", CUPY_BOUND)}, driver=True)


def jax(context, check):
    what = "JAX with cuda_async against bfc"
    if not machine.has("jax"):
        return missing(check, what, "jax")
    argv, quiet = client(context, "jax_loop.py", "--cpus", "4"), {"TF_CPP_MIN_LOG_LEVEL": "2"}
    own = {**quiet, "XLA_PYTHON_CLIENT_ALLOCATOR": "default", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".2"}
    served = {**quiet, "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async",
              "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return loop_rows(context, check, what, (argv, own), (argv, served),
                     {", a training": ("block train 20", JAX_BOUND),
                      ", several sizes": ("block sizes 10", JAX_BOUND)}, driver=True)


# ---- frameworks, by what they say -----------------------------------------------------------------
def figure_problems(native, shim, names):
    """Where figures noted at the same points are not near each other. native, shim: {"points": […]}."""
    if not native or not shim:
        return ["the client wrote no facts"]
    one, other = native["points"], shim["points"]
    if [p["point"] for p in one] != [p["point"] for p in other]:
        return ["they noted different points"]
    problems = []
    for a, b in zip(one, other):
        for name in names:
            low, high = sorted((a[name], b[name]))
            if high > low * NEAR + NEAR_BYTES:
                problems.append(f"{a['point']}: {name} is {b[name]}, natively {a[name]}")
    return problems


def _said(context, check, what, argv, env, names, expected=None):
    """The same output natively and under the shim with each backing, and what was noted near by."""
    def one(backing):
        native, shim = context.pair(argv, {**env, "VRAMSHIM_BACKING": backing}, 240, facts=names is not None)
        problems = compare_problems(native, shim)
        wanted = expected(shim.facts) if expected and shim.facts else None
        problems += report_problems(shim, wanted)
        if not problems:
            problems = reports.backing_problems(shim.report, backing)
            problems += checks_frameworks.ordered_problems(shim.report)
        if names:
            problems += figure_problems(native.facts, shim.facts, names)
        detail = json.dumps({"native": native.facts, "shim": shim.facts}) if names else ""
        return row(check, f"{what}, {backing} backing",
                   f"{len(native.out.splitlines())} facts, {native.seconds:.0f} s",
                   problems[0].splitlines()[0] if problems else f"same; {reports.pool_summary(shim.report)}",
                   "FAIL" if problems else "ok", "\n".join(problems + [detail] * bool(detail)))

    return parallel([lambda b=b: one(b) for b in BACKINGS])


def counted(facts):
    """As many calls and bytes as the program counted."""
    return {"alloc_count": facts["count"], "alloc_bytes": facts["bytes"], "failed_count": 0}


def graphs(context, check):
    what = "CUDA graphs in PyTorch, cudaMallocAsync backend"
    if not machine.has("torch"):
        return missing(check, what, "torch")
    return _said(context, check, what, client(context, "torch_graphs.py"), checks_frameworks.TORCH_ASYNC,
                 None)


def figures(context, check):
    """What PyTorch and CuPy are told of their memory; CuPy's and Numba's calls are counted, too."""
    rows = []
    for package, what, argv, env, names, expected in (
            ("torch", "what PyTorch says of its memory, cudaMallocAsync backend",
             client(context, "torch_stats.py"), checks_frameworks.TORCH_ASYNC,
             ("allocated", "allocated_peak"), None),
            ("cupy", "CuPy's MemoryAsyncPool", client(context, "cupy_alloc.py", "--pool", "async"), {},
             ("used",), counted),
            ("numba", "Numba with stream-ordered memory", client(context, "numba_alloc.py", "--async"), {},
             (), counted),
            ("jax", "JAX with cuda_async", client(context, "jax_train.py"),
             {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
              "TF_CPP_MIN_LOG_LEVEL": "2"}, None, None)):
        rows += (_said(context, check, what, argv, env, names, expected) if machine.has(package)
                 else missing(check, what, package))
    return rows
