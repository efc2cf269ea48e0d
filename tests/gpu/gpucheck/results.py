"""Rows of results: keeping, merging, showing.

A file of results holds the rows of several runs. A later run of a check replaces all earlier rows of
that check, except that "not run" never replaces a real result. Each row knows the run it came from, so
that a table put together from several calls still says what was measured where and when.
"""
import datetime
import json
import os

SCHEMA = "vramshim.gpu-check/1"
VERDICTS = ("ok", "FAIL", "unclear", "skip", "not run", "info")
JSON_NAME, MARKDOWN_NAME = "gpu-check.json", "gpu-check.md"


def row(check, name, native="", shim="", verdict="ok", detail=""):
    """One line of the table. detail: free text, shown below the table and kept in the JSON."""
    if verdict not in VERDICTS:
        raise ValueError(verdict)
    return {"check": check, "what": name, "native": native, "shim": shim, "verdict": verdict,
            "detail": detail}


def empty():
    return {"schema": SCHEMA, "runs": [], "rows": []}


def load(folder):
    """The results in a folder, or of a file; empty ones if there are none there."""
    path = os.path.join(folder, JSON_NAME) if os.path.isdir(folder) else folder
    if not os.path.exists(path):
        return empty()
    with open(path, encoding="utf-8") as file:
        results = json.load(file)
    if results.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema is {results.get('schema')!r}")
    return results


def add_run(results, machine, commit):
    """Notes who measures from here on; returns the run's number."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    results["runs"].append({"date": now, "commit": commit, **machine})
    return len(results["runs"]) - 1


def put(results, check, rows, run, order):
    """The rows of a check that was just run (or was not) take the place of its earlier ones."""
    earlier = [r for r in results["rows"] if r["check"] == check]
    real = any(r["verdict"] != "not run" for r in earlier)
    if rows and all(r["verdict"] == "not run" for r in rows) and real:
        return
    kept = [r for r in results["rows"] if r["check"] != check]
    kept += [{**r, "run": run} for r in rows]
    place = {name: number for number, name in enumerate(order)}
    kept.sort(key=lambda r: place.get(r["check"], len(place)))
    results["rows"] = kept


def merge(target, source, order):
    """All rows of source go into target as if its runs had been made after target's."""
    base = len(target["runs"])
    target["runs"] += source["runs"]
    for check in dict.fromkeys(r["check"] for r in source["rows"]):
        by_run = [r for r in source["rows"] if r["check"] == check]
        put(target, check, by_run, base + by_run[0]["run"], order)


def prune(results):
    """Drops runs of which no row is left, and renumbers."""
    used = sorted({r["run"] for r in results["rows"]})
    number = {old: new for new, old in enumerate(used)}
    results["runs"] = [results["runs"][old] for old in used]
    for r in results["rows"]:
        r["run"] = number[r["run"]]


def failed(results):
    return [r for r in results["rows"] if r["verdict"] == "FAIL"]


def _tally(rows):
    seen = [r["verdict"] for r in rows]
    return ", ".join(f"{seen.count(v)} {v}" for v in VERDICTS if v in seen) or "no rows"


def _wrapped(text, width):
    """Lines of at most width characters, broken at spaces where there are any."""
    lines, line = [], ""
    for word in str(text).split(" "):
        while len(word) > width:
            if line:
                lines.append(line)
                line = ""
            lines.append(word[:width])
            word = word[width:]
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return lines + [line]


def table(results, columns=(44, 30, 48, 8)):
    """The table as plain text."""
    def line(cells):
        parts = [_wrapped(cell, width) for cell, width in zip(cells, columns)]
        return [" | ".join((part[i] if i < len(part) else "").ljust(width)
                           for part, width in zip(parts, columns)).rstrip()
                for i in range(max(len(part) for part in parts))]

    out = line(("what", "native", "with shim", "verdict"))
    out.append("-+-".join("-" * width for width in columns))
    for r in results["rows"]:
        out += line((r["what"], r["native"], r["shim"], r["verdict"]))
    out.append("")
    out.append(_tally(results["rows"]))
    return "\n".join(out)


def details(results, verdicts=("FAIL",), limit=4000):
    """What is behind rows of these verdicts, as plain text."""
    out = []
    for r in results["rows"]:
        if r["verdict"] in verdicts and r["detail"]:
            text = r["detail"]
            if len(text) > limit:
                text = text[:limit] + "\n… (more in " + JSON_NAME + ")"
            out.append(f"--- {r['what']}: {r['verdict']}\n{text}")
    return "\n".join(out)


def markdown(results):
    """The same for docs/measurements/."""
    def cell(text):
        return str(text).replace("|", "\\|").replace("\n", " ")

    out = ["# GPU checks", "", "Written by `scripts/gpu-check`; what the rows mean: README.md.", ""]
    out += ["| run | date | commit | machine |", "|---|---|---|---|"]
    for number, run in enumerate(results["runs"]):
        versions = ", ".join(f"{k} {v}" for k, v in run.get("versions", {}).items())
        out.append(f"| {number} | {run['date']} | {cell(run['commit'])} | {cell(run.get('gpu', '?'))}, "
                   f"driver {run.get('driver', '?')}, {versions} |")
    out += ["", "| what | native | with shim | verdict | run |", "|---|---|---|---|---|"]
    for r in results["rows"]:
        out.append("| " + " | ".join(cell(r[k]) for k in ("what", "native", "shim", "verdict", "run"))
                   + " |")
    out += ["", _tally(results["rows"]), ""]
    noted = [r for r in results["rows"] if r["detail"]]
    if noted:
        out += ["## Details", ""]
        for r in noted:
            text = r["detail"] if len(r["detail"]) < 3000 else r["detail"][:3000] + "\n…"
            out += [f"**{r['what']}** ({r['verdict']})", "", "```", text, "```", ""]
    return "\n".join(out)


def save(results, folder):
    """Writes both files whole."""
    os.makedirs(folder, exist_ok=True)
    for name, text in ((JSON_NAME, json.dumps(results, indent=1) + "\n"),
                       (MARKDOWN_NAME, markdown(results))):
        path = os.path.join(folder, name)
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".tmp", path)
