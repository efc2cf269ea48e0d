#!/usr/bin/env python3
"""Processes in every way that Python starts and ends them, each taking a known amount of GPU memory.

    python3 tests/clients/ctypes_procs.py MODE [--facts FILE]

    fork-before   two forked children use CUDA, the parent only afterwards
    fork-after    the parent uses CUDA, then forks a child that does not and leaves by os._exit
    spawn, forkserver, fork   multiprocessing with that start method, two children
    subprocess    subprocess.run of a child that uses CUDA, and of one that does not
    os_exit       uses CUDA and leaves by os._exit(5)

Driver API through ctypes, nothing but the standard library; runs on the simulated driver too. Prints
facts without pids; FILE gets one JSON line a process: {"pid", "role", "cuda", "bytes", "count"}.
"""
import argparse
import ctypes
import json
import multiprocessing
import os
import subprocess
import sys

MiB = 1 << 20


def check(what, code):
    if code != 0:
        raise RuntimeError(f"{what}: CUresult {code}")


def take(sizes):
    """Makes a context and takes (and keeps) blocks of these sizes."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check("cuInit", cuda.cuInit(0))
    check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0))
    check("retain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("set current", cuda.cuCtxSetCurrent(context))
    for size in sizes:
        pointer = ctypes.c_uint64()
        check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))


def note(path, role, sizes):
    if not path:
        return
    line = json.dumps({"pid": os.getpid(), "role": role, "cuda": bool(sizes),
                       "bytes": sum(sizes), "count": len(sizes)}) + "\n"
    with open(path, "a") as out:
        out.write(line)


def child(number, path):
    sizes = [(number + 1) * MiB, 1000 + number]
    take(sizes)
    note(path, f"child {number}", sizes)


def parent(path):
    sizes = [16 * MiB, 16 * MiB, 777]
    take(sizes)
    note(path, "parent", sizes)


def by_fork(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            work()
            code = 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("fork-before", "fork-after", "spawn", "forkserver", "fork",
                                         "subprocess", "os_exit", "child", "idle-child"))
    parser.add_argument("--facts", metavar="FILE")
    options = parser.parse_args()
    mode, path = options.mode, options.facts

    if mode == "fork-before":
        for number in range(2):
            print("child left with", by_fork(lambda: child(number, path)))
        parent(path)
    elif mode == "fork-after":
        parent(path)
        print("child left with", by_fork(lambda: note(path, "idle", [])))
    elif mode in ("spawn", "forkserver", "fork"):
        context = multiprocessing.get_context(mode)
        children = [context.Process(target=child, args=(n, path)) for n in range(2)]
        for process in children:
            process.start()
        for process in children:
            process.join()
            print("child left with", process.exitcode)
        parent(path)
    elif mode == "subprocess":
        parent(path)
        for what in ("child", "idle-child"):
            command = [sys.executable, __file__, what] + (["--facts", path] if path else [])
            print(what, "left with", subprocess.run(command, check=False).returncode)
    elif mode == "os_exit":
        parent(path)
        print("leaving", flush=True)
        os._exit(5)
    elif mode == "child":
        child(0, path)
    else:
        note(path, "idle", [])
    print("done", flush=True)


if __name__ == "__main__":
    main()
