"""Running programs natively and under the shim, and comparing them.

Every program runs in a process group of its own with its output in files, under a time limit; when the
limit passes, the group is killed. Nothing here raises because a program crashed.
"""
import contextlib
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from . import reports

PYTHON = sys.executable


class Result:
    """What one run of a program came to. report is None where none was asked for or written."""

    def __init__(self, argv, code, out, err, seconds, timed_out):
        self.argv, self.code, self.out, self.err = argv, code, out, err
        self.seconds, self.timed_out = seconds, timed_out
        self.report, self.report_error = None, None

    def failure(self, expected=0):
        """Why this run is no use, or None."""
        if self.timed_out:
            return f"no end after {self.seconds:.0f} s"
        if self.code != expected:
            return f"exit code {self.code}, expected {expected}"
        return None

    def tail(self, count=1500):
        return f"stdout: {self.out[-count:]}\nstderr: {self.err[-count:]}"


class Context:
    """Where things are, and how much time is left. Safe for several checks at once."""

    def __init__(self, root, build, work, out=None, deadline=None, slots=10, log=None):
        self.root, self.build, self.work, self.out = root, build, work, out
        self.shim = os.path.join(build, "shim", "libvramshim.so")
        self.sim = os.path.join(build, "tests", "sim")
        self.clients = os.path.join(root, "tests", "clients")
        self.deadline = deadline  # time.monotonic(), or None
        self._slots = threading.BoundedSemaphore(slots)
        self._groups, self._lock, self._number = set(), threading.Lock(), 0
        self._built, self._log = {}, log
        self.stopped = False
        self.driver = None  # the path of the driver's libcuda.so.1, once known

    def scrub(self, text):
        """Without the folders of this machine: results are committed."""
        return text.replace(self.work, "WORK").replace(self.root + "/", "").replace(self.root, ".")

    def log(self, text):
        if self._log is not None:
            with self._lock:
                self._log.write(text + "\n")
                self._log.flush()

    def folder(self, name):
        """A fresh folder for one check's files."""
        with self._lock:
            self._number += 1
            path = os.path.join(self.work, f"{self._number:03}-{name}")
        os.makedirs(path)
        return path

    def left(self, wanted):
        """A time limit: what is wanted, or what is left (with a few seconds to say so)."""
        if self.deadline is None:
            return wanted
        return max(5.0, min(wanted, self.deadline + 15 - time.monotonic()))

    def environment(self, extra=None, shim=False, report=None):
        """The environment of a program: nobody else's VRAMSHIM_ settings, the shim only if asked."""
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("VRAMSHIM_") and k != "LD_PRELOAD"}
        if env.get("LD_LIBRARY_PATH"):
            # Programs run in folders of their own.
            env["LD_LIBRARY_PATH"] = ":".join(
                os.path.abspath(folder) for folder in env["LD_LIBRARY_PATH"].split(":") if folder)
        env.update(extra or {})
        # A sanitizer's runtime must come before what is instrumented (scripts/test sets this).
        first = os.environ.get("VS_TEST_PRELOAD_FIRST", "")
        if first or shim:
            env["LD_PRELOAD"] = ":".join(filter(None, (first, self.shim if shim else "")))
        if shim:
            env["VRAMSHIM_REPORT"] = report or "none"
        return env

    @contextlib.contextmanager
    def group(self, process):
        """Remembers a process group, so that stop() can end it; kills what is left of it after."""
        with self._lock:
            self._groups.add(process.pid)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with self._lock:
                self._groups.discard(process.pid)

    def stop(self):
        """Ends everything that still runs, and starts nothing more."""
        self.stopped = True
        with self._lock:
            groups = list(self._groups)
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def run(self, argv, env=None, timeout=60, cwd=None, shim=False, report=None):
        """Runs a program to its end. report: path (given to VRAMSHIM_REPORT and read afterwards)."""
        folder = self.folder(os.path.basename(argv[0]) if argv[0] != PYTHON else "python")
        out_path, err_path = os.path.join(folder, "stdout"), os.path.join(folder, "stderr")
        with self._slots, open(out_path, "wb") as out, open(err_path, "wb") as err:
            if self.stopped:
                return Result(argv, 125, "", "not started: gpu-check was stopped", 0.0, False)
            limit, start, timed_out = self.left(timeout), time.monotonic(), False
            try:
                process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                           cwd=cwd or folder, start_new_session=True,
                                           env=self.environment(env, shim, report))
            except OSError as error:
                return Result(argv, 127, "", str(error), 0.0, False)
            with self.group(process):
                try:
                    code = process.wait(limit)
                except subprocess.TimeoutExpired:
                    timed_out = True
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    code = process.wait()
            seconds = time.monotonic() - start
        texts = []
        for path in (out_path, err_path):
            with open(path, "rb") as file:
                texts.append(file.read(4 << 20).decode("utf-8", "backslashreplace"))
        result = Result(argv, code, texts[0], texts[1], seconds, timed_out)
        if shim and report and "%" not in report:
            result.report, result.report_error = reports.load(report)
        self.log(f"### {'shim  ' if shim else 'native'} {' '.join(argv)}\n"
                 f"code {code}{' TIMED OUT' if timed_out else ''}, {seconds:.1f} s\n{result.tail(3000)}")
        return result

    def pair(self, argv, env=None, timeout=60, facts=False, cwd=None):
        """The same program natively and with the shim, at once. With facts, `--facts FILE` is
        appended and what the program wrote there is in .facts (None if nothing)."""
        folder = self.folder("pair")

        def one(shim):
            name = "shim" if shim else "native"
            path = os.path.join(folder, name + ".facts")
            result = self.run(argv + (["--facts", path] if facts else []), env, timeout, cwd, shim,
                              os.path.join(folder, "report.json") if shim else None)
            result.facts = None
            if facts and os.path.exists(path):
                with open(path, encoding="utf-8") as file, contextlib.suppress(ValueError):
                    result.facts = json.load(file)
            return result

        return tuple(parallel([lambda: one(False), lambda: one(True)]))

    def build_once(self, name, argv, timeout=120):
        """Compiles something once; several checks may ask. (path, None) or (None, why not)."""
        with self._lock:
            lock = self._built.setdefault(name, [threading.Lock(), None])
        with lock[0]:
            if lock[1] is None:
                os.makedirs(os.path.join(self.work, "bin"), exist_ok=True)
                path = os.path.join(self.work, "bin", name)
                result = self.run(argv + ["-o", path], timeout=timeout)
                failure = result.failure()
                lock[1] = (None, f"{failure}\n{result.tail()}") if failure else (path, None)
        return lock[1]


def parallel(jobs):
    """Runs functions of no argument at once; their results in order."""
    with ThreadPoolExecutor(max_workers=max(1, len(jobs))) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def tool(name, *folders):
    """The path of a program: on PATH, or in one of the usual folders of the CUDA Toolkit."""
    found = shutil.which(name)
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    if nvcc:
        homes.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    for home in filter(None, homes):
        for folder in ("bin",) + folders:
            path = os.path.join(home, folder, name)
            if not found and os.access(path, os.X_OK):
                found = path
    return found


def difference(native, shim, names=("native", "with shim")):
    """A unified diff of two texts, empty if they are the same."""
    return "\n".join(difflib.unified_diff(native.splitlines(), shim.splitlines(), *names,
                                          lineterm="", n=2))


def expectation(text):
    """What a C client said it took: the JSON of its last "expect: {…}" line, or None."""
    lines = [line for line in text.splitlines() if line.startswith("expect: ")]
    try:
        return json.loads(lines[-1][len("expect: "):]) if lines else None
    except ValueError:
        return None


def shim_noise(text):
    """Lines on stderr that only the shim can have written, but for what it says of every cap."""
    return [line for line in text.splitlines() if "vramshim" in line.lower()
            and "other kinds of device memory are NOT limited" not in line]


def compare_problems(native, shim, code=0, same_stderr=False):
    """What is wrong with a pair, apart from the numbers of the report; a list of texts."""
    problems = []
    for name, result in (("native", native), ("with shim", shim)):
        failure = result.failure(code)
        if failure:
            problems.append(f"{name}: {failure}\n{result.tail()}")
    diff = difference(native.out, shim.out)
    if diff:
        problems.append(f"outputs differ:\n{diff}")
    noise = shim_noise(shim.err)
    if noise:
        problems.append("noise on stderr:\n" + "\n".join(noise[:10]))
    elif same_stderr and native.err != shim.err:
        problems.append(f"stderr differs:\n{difference(native.err, shim.err)}")
    return problems


def report_problems(result, expected=None, end=None, code=None):
    """What is wrong with the report of a run; a list of texts."""
    if result.report is None:
        return [result.report_error or "no report"]
    problems = reports.structure_problems(result.report)
    if problems:
        return problems
    process = result.report["process"]
    if end is not None and process["end"] != end:
        problems.append(f"process.end is {process['end']!r}, expected {end!r}")
    # quick_exit does not tell its handlers the code, so there null is as true as the number.
    known = (code, None) if process["end"] == "quick_exit" else (code,)
    if code is not None and process.get("exit_code") not in known:
        problems.append(f"process.exit_code is {process.get('exit_code')!r}, expected {code}")
    if expected is not None:
        problems += reports.expectation_problems(result.report, expected)
    return problems
