"""What machine this is: GPU, driver, versions of what is installed (without importing any of it)."""
import importlib.metadata
import json
import os
import platform
import re
import subprocess

from .core import PYTHON, tool

_PACKAGES = ("torch", "jax", "jaxlib", "cupy-cuda13x", "cupy-cuda12x", "numba", "numba-cuda", "numpy")

# In a process of its own: a driver that crashes must not take the table along.
_PROBE = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
code = cuda.cuInit(0)
assert code == 0, f"cuInit: CUresult {code}"
version, count, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
name = ctypes.create_string_buffer(256)
cuda.cuDriverGetVersion(ctypes.byref(version))
cuda.cuDeviceGetCount(ctypes.byref(count))
cuda.cuDeviceGetName(name, 256, 0)
cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
path = next((line.split(None, 5)[5].strip() for line in open("/proc/self/maps")
             if "/libcuda.so" in line), None)
print(json.dumps({"path": path, "gpu": name.value.decode(), "count": count.value, "api": version.value,
                  "memory": total.value}))
"""


def versions():
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def has(package):
    """Is a Python package installed here? (jax, torch, numba, cupy)"""
    names = {"cupy": [n for n in _PACKAGES if n.startswith("cupy")]}.get(package, [package])
    return any(name in versions() for name in names)


def facts(context):
    """(facts, None) or (None, why there is no usable GPU)."""
    probe = context.run([PYTHON, "-c", _PROBE], timeout=60)
    if probe.failure():
        lines = probe.err.strip().splitlines()
        return None, lines[-1] if lines else probe.failure()
    machine = json.loads(probe.out)
    context.driver = machine.pop("path")
    machine["driver"] = f"API {machine.pop('api')}"
    smi = tool("nvidia-smi")
    if smi and "Simulat" not in machine["gpu"] and "VRAMSIM" not in machine["gpu"].upper():
        answer = context.run([smi, "--query-gpu=driver_version", "--format=csv,noheader"])
        if not answer.failure() and answer.out.strip():
            machine["driver"] = answer.out.strip().splitlines()[0]
    found = versions()
    nvcc = tool("nvcc")
    if nvcc:
        release = re.search(r"release ([0-9.]+)", context.run([nvcc, "--version"]).out)
        found["CUDA"] = release.group(1) if release else "?"
    machine.update(versions=found, cpus=os.cpu_count())
    return machine, None


def commit(root):
    """VS_COMMIT, else what git says (with "+" if the tree has changes), else "unknown"."""
    given = os.environ.get("VS_COMMIT")
    if given:
        return given
    try:
        head = subprocess.run(["git", "-C", root, "rev-parse", "--short=12", "HEAD"], timeout=20,
                              capture_output=True, text=True, check=True).stdout.strip()
        dirty = subprocess.run(["git", "-C", root, "status", "--porcelain", "-uno"], timeout=20,
                               capture_output=True, text=True, check=True).stdout.strip()
        return head + ("+" if dirty else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
