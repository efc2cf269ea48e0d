"""Runs programs under the shim and reads what they leave behind.

Paths come from the environment that meson sets: VS_TEST_SHIM (the .so), VS_TEST_SIM (folder of the
simulated driver), VS_TEST_BIN (folder of the test programs). VS_TEST_PRELOAD_FIRST holds what must
come first in LD_PRELOAD, such as a sanitizer's runtime.
"""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SHIM = os.environ["VS_TEST_SHIM"]
SIM = os.environ["VS_TEST_SIM"]
BIN = os.environ["VS_TEST_BIN"]
FIRST = [p for p in os.environ.get("VS_TEST_PRELOAD_FIRST", "").split(":") if p]
SANITIZED = bool(FIRST)
# Seconds for a program to end, or for a file to appear: for what hangs, so it need not be tight.
PATIENCE = 300 if SANITIZED else 100
MIB = 1 << 20

# Everything that a test makes lies in one folder, which goes with the test.
tempfile.tempdir = tempfile.mkdtemp(prefix="vs-test-")
os.chmod(tempfile.tempdir, 0o755)  # some tests run programs as another user
atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

# What a program under test inherits: nothing of ours, and nothing that could steer the shim.
CLEAN = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("VRAMSHIM_", "VRAMSIM_", "VS_TEST_")) and key not in ("LD_PRELOAD",)
}


class Result:
    def __init__(self, code, out, err, folder, pid):
        self.code = code
        self.out = out
        self.err = err
        self.folder = folder
        self.pid = pid

    def files(self):
        return sorted(os.listdir(self.folder))

    def report(self, name="report.json"):
        with open(os.path.join(self.folder, name), encoding="utf-8") as f:
            return json.load(f)

    def reports(self):
        return [self.report(n) for n in self.files() if ".json" in n and not n.startswith(".")]


def program(name):
    return os.path.join(BIN, name)


def environment(folder, env=None, shim=True, before=(), after=()):
    """The environment of a program under test; its report goes to folder/report.json unless env
    says otherwise."""
    full = dict(CLEAN)
    full["LD_LIBRARY_PATH"] = SIM + ":" + BIN
    preload = FIRST + list(before) + ([SHIM] if shim else []) + list(after)
    if preload:
        full["LD_PRELOAD"] = ":".join(preload)
    full["VRAMSHIM_REPORT"] = os.path.join(folder, "report.json")
    for key, value in (env or {}).items():
        if value is None:
            full.pop(key, None)
        else:
            full[key] = value.replace("{}", folder)
    return full


def run(*argv, env=None, shim=True, before=(), after=(), folder=None, timeout=PATIENCE, **popen):
    """Runs a program to its end."""
    folder = folder or tempfile.mkdtemp(prefix="vs-test-")
    argv = [program(argv[0]) if "/" not in argv[0] else argv[0], *argv[1:]]
    with subprocess.Popen(
        [a.replace("{}", folder) for a in argv],
        env=environment(folder, env, shim, before, after),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **popen,
    ) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            raise AssertionError(f"{argv} hung; stdout {out!r} stderr {err!r}") from None
        return Result(child.returncode, out.decode(), err.decode(), folder, child.pid)


def client(*steps, direct=False, **kwargs):
    return run("client-direct" if direct else "client", *steps, **kwargs)


def wait_for(folder, *names, children=(), seconds=PATIENCE):
    """Waits until these files are there; a child that ended first, or too long a wait, is a failure."""
    end = time.monotonic() + seconds
    while not all(os.path.exists(os.path.join(folder, name)) for name in names):
        if time.monotonic() > end or any(child.poll() is not None for child in children):
            raise AssertionError(f"waited in vain for {names}")
        time.sleep(0.01)


def expect(actual, wanted, what=""):
    if actual != wanted:
        raise AssertionError(f"{what}: got {actual!r}, wanted {wanted!r}")


def expect_in(needle, haystack, what=""):
    if needle not in haystack:
        raise AssertionError(f"{what}: {needle!r} is not in {haystack!r}")


def expect_fine(result, code=0):
    """The program ended as it should and said nothing on stderr."""
    if result.code != code or result.err:
        raise AssertionError(
            f"code {result.code} (wanted {code}), stdout {result.out!r}, stderr {result.err!r}"
        )


def expect_device(report, index=0, **wanted):
    """Figures of one device: live, peak, count, allocs, frees, failed."""
    device = report["devices"][index]
    actual = {
        "live": device["live"]["now_bytes"],
        "peak": device["live"]["peak_bytes"],
        "count": device["live"]["now_count"],
        "allocs": device["requests"]["alloc_count"],
        "frees": device["requests"]["free_count"],
        "failed": device["requests"]["failed_count"],
    }
    for key, value in wanted.items():
        expect(actual[key], value, f"device {index}, {key}")


def main(tests):
    """Runs the test named on the command line, or all of them."""
    names = sys.argv[1:] or list(tests)
    for name in names:
        tests[name]()
        print(f"ok {name}")
