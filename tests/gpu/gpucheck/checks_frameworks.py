"""Checks of Python frameworks: same digits, and counts that agree with the framework's own."""
import os

from . import machine, reports
from .core import PYTHON, compare_problems, parallel, report_problems
from .results import row

# Both names: PyTorch renamed the variable, and either is ignored by the versions that know the other.
def torch_env(setting):
    return {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}


TORCH_ASYNC = torch_env("backend:cudaMallocAsync")  # each tensor by cuMemAllocAsync
TORCH_MODES = {
    "default": {},
    "expandable_segments": torch_env("expandable_segments:True"),
    "backend:cudaMallocAsync": TORCH_ASYNC,
    "backend:cudaMallocAsync, vmm backing": {**TORCH_ASYNC, "VRAMSHIM_BACKING": "vmm"},
    "no cache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    "no cache, vmm backing": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "VRAMSHIM_BACKING": "vmm"},
    "no cache, native backing": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "VRAMSHIM_BACKING": "native"},
}
_TORCH_BASE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def _missing(check, what, package):
    return [row(check, what, "", "", "skip", f"Python package {package} is not installed")]


def _row(check, what, native, shim, problems, agreed, detail=""):
    """One pair's row. agreed: what agreed with what, said if all is well."""
    text = "\n".join(problems + ([detail] if detail else []))
    return row(check, what, f"{len(native.out.splitlines())} facts, {native.seconds:.0f} s",
               problems[0].splitlines()[0] if problems else f"same; {agreed}",
               "FAIL" if problems else "ok", text)


def torch_handle(probe):
    """(count, bytes) that cuBLAS itself takes when PyTorch makes its handle: what the report of a run
    that makes nothing else has beyond PyTorch's own counters; or None and why."""
    problems = compare_problems(*probe) + report_problems(probe[1])
    if problems or probe[1].facts is None:
        return None, "\n".join(problems) or "the probe wrote no facts"
    found, facts = reports.counts(probe[1].report), probe[1].facts
    return (found["alloc_count"] - facts["num_device_alloc"],
            found["alloc_bytes"] - facts["reserved_bytes.all.allocated"]), None


def torch_expected(mode, facts, cached, handle):
    """What the report must say in a mode, from PyTorch's own counters plus cuBLAS's handle.

    facts: counters of this run; cached: those of the native run with the cache on, which made the
    same requests (without the cache, and with the driver's pool, PyTorch does not count them)."""
    count, size = handle
    if mode == "default":
        return {"alloc_count": facts["num_device_alloc"] + count,
                "free_count": facts["num_device_free"],
                "alloc_bytes": facts["reserved_bytes.all.allocated"] + size,
                "live_bytes": facts["segments_bytes"] + size,
                "live_count": facts["segments_count"] + count,
                "peak_bytes": facts["reserved_bytes.all.peak"] + size, "failed_count": 0}
    if mode == "expandable_segments":
        return {"alloc_count": count, "alloc_bytes": size, "failed_count": 0}
    return {"alloc_count": cached["allocation.all.allocated"] + count,
            "alloc_bytes": cached["requested_bytes.all.allocated"] + size, "failed_count": 0}


def torch(context, check):
    if not machine.has("torch"):
        return _missing(check, "PyTorch", "torch")
    client = os.path.join(context.clients, "torch_train.py")
    names = list(TORCH_MODES)
    jobs = [lambda e=env: context.pair([PYTHON, client], {**_TORCH_BASE, **e}, 240, facts=True)
            for env in TORCH_MODES.values()]
    jobs.append(lambda: context.pair([PYTHON, client, "--probe"], _TORCH_BASE, 240, facts=True))
    *pairs, probe = parallel(jobs)
    handle, why = torch_handle(probe)
    rows = [row(check, "PyTorch: cuBLAS handles alone", "", "" if handle is None else
                f"{handle[0]} allocs, {reports.bytes_text(handle[1])} beyond PyTorch's own",
                "FAIL" if handle is None else "info", why or
                "Taken by cuBLAS for the main and the backward thread, not by PyTorch; the rows below "
                "add it to PyTorch's counters.")]
    cached = pairs[0][0].facts
    losses = {}
    for mode, (native, shim) in zip(names, pairs):
        problems = compare_problems(native, shim)
        losses[mode] = native.out
        detail, agreed = "", "counts not compared"
        if native.facts is None or shim.facts is None:
            problems.append("the client wrote no facts")
        elif shim.report is None or handle is None or cached is None:
            problems += report_problems(shim)
        else:
            problems += _mode_problems(mode, shim.facts)
            expected = torch_expected(mode, shim.facts, cached, handle)
            problems += report_problems(shim, expected)
            problems += pool_problems(mode, shim.report)
            agreed = {"default": "segments, peak and calls as PyTorch counts",
                      "expandable_segments": "only cuBLAS's handle by cuMemAlloc (the rest is VMM, "
                                             "not counted yet)"}.get(
                mode, "every request of the cached run, to the byte")
            agreed += "; " + reports.summary(shim.report)
            detail = (f"report {reports.counts(shim.report)}\nPyTorch {shim.facts}\n"
                      f"expected {expected}")
        rows.append(_row(check, f"PyTorch: {mode}", native, shim, problems, agreed, detail))
    same = len(set(losses.values())) == 1
    rows.append(row(check, "PyTorch: losses of the modes among themselves",
                    "the same" if same else "not the same", "", "info"))
    return rows


def pool_problems(mode, report):
    """Was it the pool that served, and with the backing of the mode?"""
    if mode == "expandable_segments":
        return []  # cuBLAS's handles are all that is not mapped
    named = mode.removesuffix(" backing").rsplit(" ", 1)[-1] if mode.endswith("backing") else None
    return reports.backing_problems(report, named) + ordered_problems(report)


def ordered_problems(report):
    """Did the driver serve stream-ordered memory that was the pool's to serve?"""
    held = reports.counts(report).get("async_peak", 0)
    return [f"the driver's pools held {reports.bytes_text(held)} of stream-ordered memory"] if held else []


def _mode_problems(mode, facts):
    """Was the allocator really the one that the row is about?"""
    if mode.startswith("backend:cudaMallocAsync"):
        return [] if facts["backend"] == "cudaMallocAsync" else [f"backend is {facts['backend']}"]
    if mode == "expandable_segments":
        return [] if facts["expandable_segments"] else ["no segment is expandable"]
    if mode.startswith("no cache"):
        return [] if not facts["num_device_alloc"] else ["PyTorch's cache was used"]
    return []


def cupy(context, check):
    if not machine.has("cupy"):
        return _missing(check, "CuPy", "cupy")
    client = os.path.join(context.clients, "cupy_alloc.py")
    rows = []
    for mode, (native, shim) in zip(("default", "none"), parallel(
            [lambda m=m: context.pair([PYTHON, client, "--pool", m], timeout=180, facts=True)
             for m in ("default", "none")])):
        problems = compare_problems(native, shim)
        expected = None
        if shim.facts is None:
            problems.append("the client wrote no facts")
        else:
            expected = {"alloc_count": shim.facts["count"], "alloc_bytes": shim.facts["bytes"],
                        "failed_count": 0}
            if mode == "default":
                expected["peak_bytes"] = shim.facts["live"]
        problems += report_problems(shim, expected)
        agreed = shim.report and "as CuPy counts; " + reports.summary(shim.report)
        rows.append(_row(check, f"CuPy: {'own pool' if mode == 'default' else 'no pool'}", native,
                         shim, problems, agreed, f"CuPy {shim.facts}"))
    return rows


def dlpack(context, check):
    """Memory of one framework in another: the frameworks' caches on; off, and stream-ordered, with either
    backing."""
    if not machine.has("torch"):
        return _missing(check, "DLPack", "torch")
    client, rows = os.path.join(context.clients, "dlpack.py"), []
    modes = {"own caches": ([], {}), **{f"no caches, {b} backing": (["--no-caches"],
                                                                   {"VRAMSHIM_BACKING": b})
                                        for b in ("vmm", "native")},
             **{f"stream-ordered, {b} backing": (["--async"], {"VRAMSHIM_BACKING": b})
                for b in ("vmm", "native")}}
    for (mode, (_, env)), (native, shim) in zip(modes.items(), parallel(
            [lambda m=m: context.pair([PYTHON, client, *m[0]], m[1], 180) for m in modes.values()])):
        problems = compare_problems(native, shim) + report_problems(shim, {"failed_count": 0})
        if not problems and not native.out.endswith("done\n"):
            problems.append(f"it did not come to its end\n{native.tail()}")
        if not problems:
            problems += reports.backing_problems(shim.report, env.get("VRAMSHIM_BACKING"))
        without = [line for line in native.out.splitlines()
                   if line.startswith("without ") or line.endswith("no GPU here")]
        rows.append(_row(check, f"DLPack between frameworks: {mode}", native, shim, problems,
                         shim.report and reports.pool_summary(shim.report), "; ".join(without)))
    return rows


def jax(context, check):
    if not machine.has("jax"):
        return _missing(check, "JAX", "jax")
    # The default takes three quarters of the GPU; two runs at once need less.
    env = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    native, shim = context.pair([PYTHON, os.path.join(context.clients, "jax_train.py")], env, 240,
                                facts=True)
    problems = compare_problems(native, shim)
    if not problems and "platform gpu" not in native.out and "platform cuda" not in native.out:
        problems.append("JAX did not use the GPU")
    problems += report_problems(shim, {"failed_count": 0})
    agreed, detail = "", ""
    if shim.report is not None and shim.facts:
        found = reports.counts(shim.report)
        piece = shim.facts.get("pool_bytes") or shim.facts.get("bytes_limit") or 0
        # Its one piece comes by cuMemCreate, which is not counted yet; what XLA takes beside it is.
        if not 0 < found["peak_bytes"] <= 256 << 20:
            problems.append(f"peak {found['peak_bytes']}: XLA takes little beside JAX's piece")
        agreed = (f"{found['alloc_count']} allocs, {reports.bytes_text(found['peak_bytes'])} beside "
                  f"JAX's piece of {reports.bytes_text(piece)} (VMM, not counted yet)")
        detail = f"report {found}\nJAX {shim.facts}"
    elif not problems:
        problems.append("the client wrote no facts")
    return [_row(check, "JAX: default allocator", native, shim, problems, agreed, detail)]


def numba(context, check):
    if not machine.has("numba"):
        return _missing(check, "Numba", "numba")
    native, shim = context.pair([PYTHON, os.path.join(context.clients, "numba_alloc.py")],
                                timeout=180, facts=True)
    problems = compare_problems(native, shim)
    expected = None
    if shim.facts is None:
        problems.append("the client wrote no facts")
    else:
        expected = {"alloc_count": shim.facts["count"], "alloc_bytes": shim.facts["bytes"],
                    "failed_count": 0}
    problems += report_problems(shim, expected)
    agreed = shim.report and "as the program counts; " + reports.summary(shim.report)
    return [_row(check, "Numba", native, shim, problems, agreed)]
