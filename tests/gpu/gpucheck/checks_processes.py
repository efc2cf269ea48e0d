"""Checks of processes (how they start and end, whose report is whose) and of NVIDIA's tools."""
import json
import os

from . import checks_native, machine, reports
from .core import (PYTHON, compare_problems, difference, expectation, parallel, report_problems,
                   shim_noise, tool)
from .results import row

PROCESS_MODES = ("fork-before", "fork-after", "fork", "spawn", "forkserver", "subprocess", "os_exit")
_CODES = {"os_exit": 5}


def _lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def process_problems(folder, facts):
    """Each process that used CUDA has its own report with its own numbers, and no other has one."""
    problems, found = [], {}
    for name in sorted(os.listdir(folder)):
        report, why = reports.load(os.path.join(folder, name))
        if report is None:
            problems.append(f"{name}: {why}")
        else:
            found[report["process"]["pid"]] = report
            problems += [f"{name}: {p}" for p in reports.structure_problems(report)]
    known = {fact["pid"]: fact for fact in facts}
    for pid, fact in known.items():
        role = fact["role"]
        if not fact["cuda"]:
            if pid in found:
                problems.append(f"{role} used no CUDA but has a report")
        elif pid not in found:
            problems.append(f"{role} has no report")
        else:
            problems += [f"{role}: {p}" for p in reports.expectation_problems(
                found[pid], {"peak_bytes": fact["bytes"], "alloc_count": fact["count"]})]
    strangers = [found[pid]["process"].get("argv") for pid in found if pid not in known]
    if strangers:
        problems.append(f"reports of processes that should have none: {strangers}")
    return problems


def _process_row(context, check, title, client, mode, timeout):
    folder = context.folder("processes")
    written = os.path.join(folder, "reports")
    os.makedirs(written)
    paths = [os.path.join(folder, name) for name in ("native.facts", "shim.facts")]
    argv = [PYTHON, os.path.join(context.clients, client), mode, "--facts"]
    native, shim = parallel([
        lambda: context.run(argv + [paths[0]], timeout=timeout),
        lambda: context.run(argv + [paths[1]], timeout=timeout, shim=True,
                            report=os.path.join(written, "%p.json"))])
    problems = compare_problems(native, shim, _CODES.get(mode, 0))
    facts = _lines(paths[1])
    if not facts:
        problems.append("no process wrote facts")
    problems += process_problems(written, facts)
    users = sum(fact["cuda"] for fact in facts)
    return row(check, f"{title}: {mode}", f"exit {native.code}, {len(native.out.splitlines())} facts",
               problems[0].splitlines()[0] if problems else
               f"same; {users} of {len(facts)} processes used CUDA, {users} true reports",
               "FAIL" if problems else "ok", "\n".join(problems))


def processes(context, check):
    return parallel([lambda m=m: _process_row(context, check, "processes", "ctypes_procs.py", m, 60)
                     for m in PROCESS_MODES])


def torch_processes(context, check):
    if not machine.has("torch"):
        return [row(check, "PyTorch processes", "", "", "skip", "torch is not installed")]
    return parallel([lambda m=m: _process_row(context, check, "PyTorch processes", "torch_procs.py",
                                              m, 240)
                     for m in ("spawn", "forkserver", "dataloader")])


def _quiet_row(context, check, what, argv):
    """A tool that must print the same, say nothing more and write no report."""
    folder = context.folder("tool")
    native = context.run(argv, timeout=60)
    shim = context.run(argv, timeout=60, shim=True, report=os.path.join(folder, "%p.json"))
    problems = compare_problems(native, shim, native.code, same_stderr=True)
    if os.listdir(folder):
        problems.append(f"it left {len(os.listdir(folder))} reports")
    return row(check, what, f"exit {native.code}, {len(native.out)} bytes",
               problems[0].splitlines()[0] if problems else "same, no report, no noise",
               "FAIL" if problems else "ok", "\n".join(problems))


def tools(context, check):
    rows = []
    smi = tool("nvidia-smi")
    if smi:
        rows.append(_quiet_row(context, check, "nvidia-smi -L", [smi, "-L"]))
        rows.append(_quiet_row(context, check, "nvidia-smi --query-gpu", [
            smi, "--query-gpu=name,uuid,memory.total,driver_version,compute_cap", "--format=csv"]))
    else:
        rows.append(row(check, "nvidia-smi", "", "", "skip", "not here"))
    for name, argv in (("true", ["true"]), ("bash", ["bash", "-c", "echo $((1+1)); (echo sub)"]),
                       ("git", ["git", "--version"]), ("python3", [PYTHON, "-c", "print(1)"])):
        if tool(argv[0]) or os.path.exists(argv[0]):
            rows.append(_quiet_row(context, check, f"a program without CUDA: {name}", argv))
    rows += _sanitizer(context, check)
    return rows


def _sanitizer(context, check):
    """Of a sound program and of one with a planted fault."""
    sanitizer = tool("compute-sanitizer", "compute-sanitizer")
    rows = []
    for what, (path, why), more, faulty in (
            ("compute-sanitizer around a shimmed program",
             checks_native.runtime_program(context, "static"), ["patterns"], False),
            ("compute-sanitizer finds a use after free",
             checks_native.nvcc_program(context, "use_after_free", "use_after_free.cu", "-cudart",
                                        "static"), [], True)):
        if sanitizer is None or path is None:
            rows.append(row(check, what, "", "", "skip", why or "no compute-sanitizer here"))
        else:
            rows.append(_sanitized(context, check, what, [sanitizer, "--report-api-errors", "no", path,
                                                          *more], path, faulty))
    return rows


def sanitizer_problems(native, shim, faulty):
    """What is wrong with a pair under compute-sanitizer, apart from counts; and its findings natively.
    faulty: the program has a fault that must be found."""
    facts = [[line for line in r.out.splitlines() if not line.startswith("=========")]
             for r in (native, shim)]
    findings = [[line for line in r.out.splitlines() if "ERROR SUMMARY" in line]
                for r in (native, shim)]
    failure = shim.failure(native.code)
    problems = [f"with shim: {failure}\n{shim.tail()}"] if failure else []
    problems += [text for text in (difference("\n".join(facts[0]), "\n".join(facts[1])),) if text]
    if findings[0] != findings[1]:
        problems.append(f"findings differ: {findings}")
    invalid = [sum("Invalid __global__ write" in line for line in r.out.splitlines())
               for r in (native, shim)]
    if faulty and not all(invalid):
        problems.append(f"the planted fault was found {invalid[0]} times natively, {invalid[1]} times "
                        "with the shim")
    # It may say that its pool is off.
    problems += [line for line in shim_noise(shim.err) if "pool" not in line]
    problems += report_problems(shim)
    if shim.report is not None and not problems:
        # Pooling would hide what a sanitizer looks for, so the pool is off by itself.
        problems += reports.backing_problems(shim.report, False)
    return problems, findings[0]


def _sanitized(context, check, what, argv, path, faulty):
    folder = context.folder("sanitizer")
    native, shim = parallel([
        lambda: context.run(argv, timeout=120),
        lambda: context.run(argv, timeout=120, shim=True, report=os.path.join(folder, "%p.json"))])
    if native.failure() and not faulty:
        return row(check, what, "does not work here", "", "skip",
                   f"{native.failure()}\n{native.tail()}")
    # The sanitizer's own processes may use CUDA as well; the program's report is the one meant.
    for name in os.listdir(folder):
        report, why = reports.load(os.path.join(folder, name))
        if report is None:
            shim.report_error = why
        elif report["process"]["argv"][:1] == [path]:
            shim.report = report
    problems, findings = sanitizer_problems(native, shim, faulty)
    # The sanitizer may take memory of its own through the same calls: what the program asked for must
    # be there at least.
    if shim.report is not None and not problems and not faulty:
        expected, found = expectation(shim.out), reports.counts(shim.report)
        if expected is None or found["alloc_count"] < expected["alloc_count"]:
            problems.append(f"the report has {found}, the program counts {expected}")
    return row(check, what, findings[0].strip("= ") if findings else "runs",
               problems[0].splitlines()[0] if problems else
               "same findings, same facts, a report that says that no pool served",
               "FAIL" if problems else "ok", "\n".join(problems))
