"""The conformance programs of the build, on the GPU and on the simulator, natively and shimmed.

A program NAME reaches the driver by dlsym, with the argument "getproc" by cuGetProcAddress, and as
NAME_direct by a link. The first goes all ways: on the GPU natively, with the shim as it is shipped and
with the backings forced, and on the simulator natively and with the shim; the other two are about
look-ups and go only to the GPU, natively and with the shim as shipped.
"""
import importlib.util
import json
import os

from .core import difference, parallel, report_problems, shim_noise
from .results import row

OUTPUTS = "conformance-gpu.json"
_AT_ONCE = 4


def _is_program(path):
    if ".so" in os.path.basename(path) or not os.path.isfile(path) or not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def programs(build):
    """[(name, lookup, argv)] of what the build has."""
    folder = os.path.join(build, "tests", "conformance")
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if not _is_program(path):
            continue
        if name.endswith("_direct"):
            found.append((name[:-len("_direct")], "direct", [path]))
            continue
        found.append((name, "dlsym", [path]))
        if _is_program(path + "_direct"):  # not so where the look-up itself is the subject
            found.append((name, "getproc", [path, "getproc"]))
    return found


def environment(context, where):
    """What makes a program find the driver, or the simulator."""
    if where == "sim":
        return {"LD_LIBRARY_PATH": context.sim}
    # A directly linked program knows the folder of the simulator that it was linked with; the
    # driver's own folder comes first.
    folders = [os.path.dirname(context.driver)] if context.driver else []
    folders.append(os.environ.get("LD_LIBRARY_PATH"))
    return {"LD_LIBRARY_PATH": ":".join(filter(None, folders))}


def _shimmed():
    """tests/conformance/shimmed.py: what is set for which program under the shim."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = importlib.util.spec_from_file_location(
        "shimmed", os.path.join(folder, "conformance", "shimmed.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHIMMED = _shimmed()
GPU_SHIM = "gpu shim"  # as it is shipped; with a backing forced: FORCED
FORCED = {f"gpu shim, {backing} backing": backing for backing in SHIMMED.BACKINGS}


def ways_of(context, lookup, argv, places, one_by_one=False):
    """{"gpu native": Result, GPU_SHIM: …, each of FORCED: …, "sim native": …, "sim shim": …}, as far as
    asked for."""
    jobs, names = [], []
    program = os.path.basename(argv[0]).removesuffix("_direct")

    def add(name, where, shim, more=None):
        more = {**(SHIMMED.SETTINGS.get(program, {}) if shim else {}), **(more or {})}
        report = os.path.join(context.folder("conformance"), "report.json") if shim else None
        names.append(name)
        jobs.append(lambda: context.run(argv, {**environment(context, where), **more}, 60, None,
                                        shim, report))

    for where in places if lookup == "dlsym" else ("gpu",):
        add(f"{where} native", where, False)
        add(f"{where} shim", where, True)
    if lookup == "dlsym":
        for name, backing in FORCED.items():
            if (program, backing) not in SHIMMED.LEFT_OUT:
                add(name, "gpu", True, {"VRAMSHIM_BACKING": backing})
    done = [job() for job in jobs] if one_by_one else parallel(jobs)
    return dict(zip(names, done))


def absent(result):
    """Does the program say that its subject does not exist here?"""
    return result.out.startswith("not here: ")


def _failure(result):
    """Why a run is no use, or None."""
    failure = result.failure()
    if not failure and not absent(result) and not result.out.rstrip().endswith(" facts"):
        failure = "it did not come to its end"
    return failure


def problems(ways):
    """Three lists of texts: what is wrong with the program (it fails natively on the GPU), what the
    shim changes on the GPU, where the simulator is not like the GPU."""
    of_program, of_shim, of_sim = [], [], []
    native = ways["gpu native"]
    own = _failure(native)
    for name, result in ways.items():
        mine = of_program if name == "gpu native" else of_sim if name.startswith("sim") else of_shim
        failure = _failure(result)
        if failure and (result is native or failure != own):
            mine.append(f"{name}: {failure}\n{result.tail(700)}")
        noise = shim_noise(result.err)
        if noise:
            mine.append(f"{name}: noise on stderr: " + "; ".join(noise[:3]))
        if result is not native and not absent(native) and not absent(result):
            diff = difference(native.out, result.out, ("gpu native", name))
            if diff:
                mine.append(diff)
    for name in [GPU_SHIM] + [name for name in FORCED if name in ways]:
        if absent(native) != absent(ways[name]):
            of_shim.append(f"{name}: only one of them says that its subject is not here")
        if ways[name].report is not None:
            of_shim += [f"{name}: {text}" for text in report_problems(ways[name])]
    return of_program, of_shim, of_sim


def _keep_outputs(context, found):
    """What the programs say on the GPU, for tests/conformance/expected (see --expected)."""
    if context.out is None:
        return
    said = {name: ways["gpu native"].out for (name, lookup, _), ways, (of_program, of_shim, _) in found
            if lookup == "dlsym" and not of_program and not of_shim
            and not absent(ways["gpu native"])}
    with open(os.path.join(context.out, OUTPUTS), "w", encoding="utf-8") as file:
        json.dump(said, file, indent=1)


def write_expected(folder, target):
    """Writes the outputs kept in a results folder as target/NAME.txt; nothing if there are none."""
    path = os.path.join(folder, OUTPUTS)
    if not os.path.exists(path):
        return
    os.makedirs(target, exist_ok=True)
    with open(path, encoding="utf-8") as file:
        for name, text in json.load(file).items():
            with open(os.path.join(target, name + ".txt"), "w", encoding="utf-8") as out:
                out.write(text)


def conformance(context, check):
    every = programs(context.build)
    if not every:
        return [row(check, "conformance programs", "", "", "skip",
                    "none in the build (tests/conformance)")]
    places = ("gpu", "sim") if os.path.exists(os.path.join(context.sim, "libcuda.so.1")) else ("gpu",)
    found, rows = [], []
    for start in range(0, len(every), _AT_ONCE):
        some = every[start:start + _AT_ONCE]
        for program, ways in zip(some, parallel(
                [lambda p=p: ways_of(context, p[1], p[2], places) for p in some])):
            found.append((program, ways, problems(ways)))
    for number, (program, ways, first) in enumerate(found):
        # Once more, alone: a difference that only shows under load is said to be one.
        if any(first) and not any(way.timed_out for way in ways.values()):
            again = ways_of(context, program[1], program[2], places, one_by_one=True)
            found[number] = program, again, problems(again)
            if not any(found[number][2]):
                rows.append(row(check, f"conformance: {program[0]} by {program[1]}", "", "", "info",
                                "differed while others ran, not when alone:\n"
                                + "\n".join(sum(first, []))))
    _keep_outputs(context, found)
    return _summary(check, found, places) + rows + _differing(check, found)


def _summary(check, found, places):
    skipped = sorted({f"{p[0]} ({p[1]}): {w['gpu native'].out.splitlines()[0]}"
                      for p, w, _ in found if absent(w["gpu native"])})
    facts = sum(len(w["gpu native"].out.splitlines()) for _, w, _ in found)
    bad = sum(bool(of_program or of_shim) for _, _, (of_program, of_shim, _) in found)
    names = len({p[0] for p, _, _ in found})
    forced = [name for name in FORCED if any(name in ways for _, ways, _ in found)]
    rows = [row(check, f"conformance: {names} programs, {len(found)} pairs on the GPU"
                + (", with each backing" if forced else ""),
                f"{facts} lines; {len(skipped)} find their subject absent",
                f"{len(found) - bad} of {len(found)} the same", "FAIL" if bad else "ok",
                "\n".join(skipped))]
    if len(places) == 2:
        four = [(p, w, both) for p, w, both in found if p[1] == "dlsym"]
        bad = sum(bool(of_sim) for _, _, (_, _, of_sim) in four)
        rows.append(row(check, f"conformance: the simulator says what the GPU says, {len(four)} "
                        "programs", f"{len(four) - bad} of {len(four)} the same", "",
                        "FAIL" if bad else "ok"))
    return rows


def _differing(check, found):
    rows = []
    for (name, lookup, _), ways, (of_program, of_shim, of_sim) in found:
        what = [text for text, there in (("it fails natively", of_program),
                                         ("the shim changes it", of_shim),
                                         ("the simulator is not like the GPU", of_sim)) if there]
        if what:
            rows.append(row(check, f"conformance: {name} by {lookup}",
                            f"exit {ways['gpu native'].code}", "; ".join(what), "FAIL",
                            "\n".join(of_program + of_shim + of_sim)))
    return rows
