"""Reading the shim's JSON report: is it well formed, and do its counts agree with what is known?

The schema is vramshim.report/1. Keys may be added within a version, so unknown keys are fine;
missing ones, wrong types and contradictions are not.
"""
import json

_NUMBER = (int, float)
_PROCESS = {"pid": int, "ppid": int, "executable": str, "argv": list, "host": str,
            "started_at": str, "duration_ns": int, "end": str}
_DEVICE = {"index": int, "uuid": str, "name": str, "total_bytes": int, "live": dict,
           "reserved": dict, "used": dict, "by_kind": list, "host_pinned": dict,
           "requests": dict, "pool": dict, "fragmentation": dict}
_LIVE = {"now_bytes": int, "peak_bytes": int, "peak_at_ns": int, "now_count": int}
_REQUESTS = {"alloc_count": int, "free_count": int, "alloc_bytes": int, "failed_count": int}
_ENDS = ("exit", "_exit", "quick_exit", "exec", "killed", "running")
_KINDS = ("pool", "plain", "async", "vmm", "managed", "array", "graph", "overflow", "context")
TIMELINE_ROWS = 2048


def load(path):
    """(report, None) or (None, why not)."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file), None
    except FileNotFoundError:
        return None, "no report was written"
    except (OSError, ValueError) as error:
        return None, f"the report cannot be read: {error}"


def _members(where, thing, wanted, problems):
    for key, kind in wanted.items():
        if key not in thing:
            problems.append(f"{where}.{key} is missing")
        elif not isinstance(thing[key], kind) or isinstance(thing[key], bool):
            problems.append(f"{where}.{key} is {type(thing[key]).__name__}")


def structure_problems(report):
    """What is wrong with a report by itself: a list of sentences, empty if nothing."""
    problems = []
    if not isinstance(report, dict):
        return ["the report is no object"]
    if report.get("schema") != "vramshim.report/1":
        problems.append(f"schema is {report.get('schema')!r}")
    for key, kind in (("process", dict), ("options", dict), ("devices", list), ("leaks", list),
                      ("timeline", dict)):
        if not isinstance(report.get(key), kind):
            problems.append(f"{key} is missing or no {kind.__name__}")
    if problems:
        return problems
    _members("process", report["process"], _PROCESS, problems)
    if report["process"].get("end") not in _ENDS:
        problems.append(f"process.end is {report['process'].get('end')!r}")
    for device in report["devices"]:
        where = f"devices[{device.get('index')}]"
        _members(where, device, _DEVICE, problems)
        _members(where + ".live", device.get("live", {}), _LIVE, problems)
        _members(where + ".requests", device.get("requests", {}), _REQUESTS, problems)
        live = device.get("live", {})
        if live.get("now_bytes", 0) > live.get("peak_bytes", 0):
            problems.append(f"{where}.live: more now than at the peak")
        for row in device.get("by_kind", []):
            if row.get("kind") not in _KINDS:
                problems.append(f"{where}.by_kind has {row.get('kind')!r}")
    for leak in report["leaks"]:
        _members("leaks[]", leak, {"device": int, "bytes": int, "count": int}, problems)
    rows = report["timeline"].get("rows", [])
    width = len(report["timeline"].get("columns", []))
    if len(rows) > TIMELINE_ROWS:
        problems.append(f"timeline has {len(rows)} rows")
    if any(len(row) != width for row in rows):
        problems.append("a timeline row does not fit its columns")
    return problems


def counts(report):
    """The numbers of a report that programs can know, summed over devices."""
    found = dict.fromkeys(("alloc_count", "free_count", "alloc_bytes", "failed_count", "live_bytes",
                           "live_count", "peak_bytes", "leak_bytes", "leak_count"), 0)
    for device in report["devices"]:
        for key in ("alloc_count", "free_count", "alloc_bytes", "failed_count"):
            found[key] += device["requests"][key]
        found["live_bytes"] += device["live"]["now_bytes"]
        found["live_count"] += device["live"]["now_count"]
        found["peak_bytes"] += device["live"]["peak_bytes"]
        for row in device["by_kind"]:
            name = row["kind"] + "_peak"
            found[name] = found.get(name, 0) + row["peak_bytes"]
    found["leak_bytes"] = sum(leak["bytes"] for leak in report["leaks"])
    found["leak_count"] = sum(leak["count"] for leak in report["leaks"])
    return found


def backings(report):
    """The backings of the devices' pools; none where the driver served everything."""
    return sorted({d["pool"].get("backing") for d in report["devices"]} - {None, "off", "none"})


def backing_problems(report, backing):
    """Did a pool serve, and with this backing (None: any)? False: there must have been none."""
    found = backings(report)
    if backing is False:
        held = counts(report).get("pool_peak", 0)
        return ([f"the pool was on ({', '.join(found)})"] if found else []) + (
            [f"{held} bytes are the pool's"] if held else [])
    if not found:
        return ["no pool served: the report names no backing"]
    if backing is not None and found != [backing]:
        return [f"the backing was {', '.join(found)}, not {backing}"]
    return []


def peaks(report):
    """(live, reserved): the highest of each, in bytes, summed over devices."""
    return (sum(d["live"]["peak_bytes"] for d in report["devices"]),
            sum(d["reserved"].get("peak_bytes", 0) for d in report["devices"]))


def pool_summary(report):
    """One line of what the pools did."""
    live, reserved = peaks(report)
    pools = [d["pool"] for d in report["devices"]]

    def total(key):
        return sum(pool.get(key) or 0 for pool in pools)

    return (f"{', '.join(backings(report)) or 'no pool'}: live peak {bytes_text(live)}, reserved "
            f"{bytes_text(reserved)}, {total('hits')} hits, {total('misses')} misses, {total('waits')} "
            f"waits ({total('wait_ns') / 1e6:.1f} ms), {bytes_text(total('remapped_bytes'))} remapped")


# What the pool may have served instead of the driver.
SERVED = ("plain_peak", "async_peak")


def _as_expected(key, value, found, pooled):
    if key in SERVED and pooled:
        # What the pool serves is charged as what the pool holds: that much at least.
        left, pool = found.get(key, 0), found.get("pool_peak", 0)
        return left <= value <= left + pool
    return found.get(key, 0) == value


def expectation_problems(report, expected):
    """Where the report's numbers are not the expected ones; None in expected is not compared, and a
    kind that the report does not list is 0. plain_peak and async_peak are what the program took by
    plain and stream-ordered calls, whoever served it."""
    found = counts(report)
    pooled = bool(backings(report)) or found.get("pool_peak", 0) > 0
    return [f"{key}: report says {found.get(key, 0)}, expected {value}"
            + (f" ({found.get('pool_peak', 0)} in the pool)" if key in SERVED else "")
            for key, value in expected.items()
            if value is not None and not _as_expected(key, value, found, pooled)]


def bytes_text(count):
    """A size for people: exact below 10 KiB, then with one decimal."""
    if count is None:
        return "?"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= size * (10 if unit == "KiB" else 1):
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def summary(report):
    """One line of a report's counts, for the table."""
    found = counts(report)
    return (f"{found['alloc_count']} allocs, {found['free_count']} frees, "
            f"peak {bytes_text(found['peak_bytes'])}")
