"""The pool in whole programs: who is served, what the driver sees of it, caps, ends of contexts, memory
that goes back, other processes. The programs are a few lines of Python on the driver API (ctypes)."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

from harness import (
    BIN, MIB, SANITIZED, client, expect, expect_fine, expect_in, main, run,
)

TESTS = {}
BACKINGS = ("native", "vmm")


def test(function):
    TESTS[function.__name__] = function
    return function


PRELUDE = """
import ctypes as C, os, sys, threading, time
cu = C.CDLL("libcuda.so.1")
u64, size_t, vp = C.c_uint64, C.c_size_t, C.c_void_p
MIB = 1 << 20
def ok(result, what=""):
    if result != 0:
        print("failed:", what, result); sys.stdout.flush(); os._exit(9)
def start(device=0):
    ok(cu.cuInit(0)); return use(device)
def use(device):
    context = vp(); ok(cu.cuDevicePrimaryCtxRetain(C.byref(context), device))
    ok(cu.cuCtxSetCurrent(context)); return context
def try_alloc(size):
    p = u64(1); r = cu.cuMemAlloc_v2(C.byref(p), size_t(size)); return r, p.value
def alloc(size):
    r, p = try_alloc(size); ok(r, "cuMemAlloc"); return p
def free(p): return cu.cuMemFree_v2(u64(p))
def fill(p, value, size): ok(cu.cuMemsetD8_v2(u64(p), C.c_ubyte(value), size_t(size)))
def read(p, size):
    b = (C.c_ubyte * size)(); ok(cu.cuMemcpyDtoH_v2(b, u64(p), size_t(size))); return bytes(b)
def in_thread(f, *a):
    t = threading.Thread(target=f, args=a); t.start(); t.join()
def attribute(name, p, kind=u64):
    v = kind(0); r = cu.cuPointerGetAttribute(C.byref(v), name, u64(p)); return r, v.value
def range_of(p):
    b, s = u64(), size_t(); r = cu.cuMemGetAddressRange_v2(C.byref(b), C.byref(s), u64(p))
    return r, b.value, s.value
def info():
    f, t = size_t(), size_t(); ok(cu.cuMemGetInfo_v2(C.byref(f), C.byref(t))); return f.value
def threads():
    names = []
    for t in os.listdir("/proc/self/task"):
        names.append(open(f"/proc/self/task/{t}/comm").read().strip())
    return names
def decay_thread(wait=0):
    end = time.monotonic() + wait
    while wait and decay_thread() is None and time.monotonic() < end: time.sleep(0.01)
    for t in os.listdir("/proc/self/task"):
        if open(f"/proc/self/task/{t}/comm").read().startswith("vramshim"): return t
    return None
"""


def python(source, backing="native", env=None, after=(), **kwargs):
    return run(sys.executable, "-c", PRELUDE + textwrap.dedent(source),
               env={"VRAMSHIM_BACKING": backing, **(env or {})}, after=after, **kwargs)


def said(source, backing="native", code=0, **kwargs):
    """The lines that the program printed; it must end well and say nothing else."""
    result = python(source, backing, **kwargs)
    if result.code != code or clean(result.err):
        raise AssertionError(f"{backing}: code {result.code}, stdout {result.out!r}, stderr {result.err!r}")
    return result.out.splitlines(), result


def clean(err):
    """Without what is said of caps, as long as they do not hold for every kind."""
    return re.sub(r"^vramshim\[\d+\]: VRAMSHIM_(LIMIT|FRACTION): .*\n", "", err, flags=re.MULTILINE)


def device(result, index=0):
    return result.report()["devices"][index]


def kinds(of):
    return {k["kind"]: k["now_bytes"] for k in of["by_kind"]}


def codes(result):
    return [note["code"] for note in result.report()["notes"]]


# Serving


@test
def the_pool_serves():
    for backing in BACKINGS:
        _, result = said("""
            start()
            for round in range(20):
                ps = [alloc(1000 + 100 * i) for i in range(50)]
                assert len(set(ps)) == 50 and all(p % 512 == 0 for p in ps)
                for p in ps: ok(free(p))
        """, backing)
        of = device(result)
        expect(of["requests"]["alloc_count"], 1000, backing)
        expect(of["live"]["now_bytes"], 0, backing)
        expect(of["fragmentation"]["internal_ratio"], None, backing)
        expect(of["pool"]["backing"], backing)
        expect(of["pool"]["misses"] < 20, True, of["pool"])
        expect(of["pool"]["hits"] > 900, True, of["pool"])
        expect(kinds(of).get("pool"), of["reserved"]["now_bytes"])
        expect("plain" in kinds(of), False)


@test
def rounding_is_told():
    """The ledger knows what was asked for, the pool what it takes."""
    for backing in BACKINGS:
        _, result = said("start(); ps = [alloc(600) for _ in range(300)]", backing)
        of = device(result)
        expect((of["pool"]["live_bytes"], of["pool"]["block_bytes"]), (180000, 307200), backing)
        expect(of["fragmentation"]["internal_ratio"], 0.4141, backing)


@test
def the_driver_sees_few_calls():
    source = """
        start()
        for i in range(500): ok(free(alloc(3000)))
    """
    tool = os.path.join(BIN, "libtool_plain.so")
    seen = {}
    for pool in ("on", "off"):
        result = python(source, env={"VRAMSHIM_POOL": pool}, after=[tool])
        expect(result.code, 0)
        seen[pool] = int(re.search(r"plain:? (\d+)", result.out + result.err).group(1))
    expect(seen["off"], 500)
    expect(seen["on"] < 10, True, seen)


@test
def off_is_the_driver():
    _, result = said("start(); p = alloc(3000); q = alloc(5000); ok(free(p))", env={"VRAMSHIM_POOL": "off"})
    of = device(result)
    expect(kinds(of), {"plain": 5000})
    expect((of["reserved"]["now_bytes"], of["reserved"]["peak_bytes"]), (0, 0))
    expect(of["live"]["now_bytes"], 5000)


@test
def freed_anywhere():
    """In another thread, without a context, and in another context."""
    for backing in BACKINGS:
        lines, result = said("""
            context = start()
            p, q, r = alloc(3000), alloc(5 * MIB), alloc(100)
            def plain(): print(free(p), free(p), free(p + 512))
            in_thread(plain)
            made = vp(); ok(cu.cuCtxCreate_v2(C.byref(made), 0, 0))
            mine = alloc(4096)
            print(free(q))
            ok(cu.cuCtxSetCurrent(context))
            print(free(mine), free(mine), free(r))
            ok(cu.cuCtxDestroy_v2(made))
        """, backing)
        expect(lines, ["0 1 1", "0", "0 1 0"], backing)
        expect(device(result)["live"]["now_bytes"], 0)
        expect(device(result)["requests"]["free_count"], 4)


@test
def wrong_frees():
    """What lies in an arena and is no live block's start never reaches the driver."""
    for backing in BACKINGS:
        lines, _ = said("""
            start()
            big, small = alloc(6 * MIB), alloc(700)
            fill(big, 7, 6 * MIB); fill(small, 8, 700)
            base = small & ~(2 * MIB - 1)
            tries = [big + 1, big + 2 * MIB, big + 6 * MIB - 512, small + 1, small + 512]
            if base != small: tries.append(base)
            print({free(p) for p in tries})
            assert read(big, 6 * MIB) == bytes([7]) * (6 * MIB) and read(small, 700) == bytes([8]) * 700
            ok(free(big)); print(free(big), free(big + 2 * MIB)); ok(free(small))
        """, backing)
        expect(lines, ["{1}", "1 1"], backing)


@test
def per_device():
    lines, result = said("""
        start(0); a = alloc(3 * MIB); use(1); b = alloc(5 * MIB); c = alloc(1000)
        print([attribute(9, p, C.c_int)[1] for p in (a, b, c)])
        ok(free(a))
    """, env={"VRAMSIM_DEVICES": "2"})
    expect(lines, ["[0, 1, 1]"])
    expect([device(result, i)["live"]["now_bytes"] for i in (0, 1)], [0, 5 * MIB + 1000])
    expect(all(device(result, i)["reserved"]["now_bytes"] > 0 for i in (0, 1)), True)


# Contexts


@test
def arenas_come_and_go():
    for backing in BACKINGS:
        _, result = said("""
            context = start()
            for round in range(40):
                p = alloc(3 * MIB); q = alloc(1000); fill(p, round, 3 * MIB)
                if round % 2: ok(free(p))
                ok(cu.cuDevicePrimaryCtxReset_v2(0)); context = use(0)
                assert free(q) == 1, "a block that went with its context"
            made = vp()
            for round in range(40):
                ok(cu.cuCtxCreate_v2(C.byref(made), 0, 0)); p = alloc(3 * MIB)
                if round % 2: ok(cu.cuCtxSetCurrent(context))
                ok(cu.cuCtxDestroy_v2(made)); assert free(p) == 1
                ok(cu.cuCtxSetCurrent(context))
            q = alloc(1 * MIB); fill(q, 9, MIB); assert read(q, MIB) == bytes([9]) * MIB
            ok(free(q))
            print(info() > 900 * MIB)
        """, backing)
        of = device(result)
        expect(result.out, "True\n", backing)
        expect(of["live"]["now_bytes"], 0)
        expect(of["reserved"]["peak_bytes"] < 100 * MIB, True, of["reserved"])
        expect(of["reserved"]["now_bytes"], kinds(of).get("pool", 0))


@test
def the_last_release_ends_the_arena():
    for backing in BACKINGS:
        lines, result = said("""
            start(); p = alloc(3 * MIB); use(0)
            ok(cu.cuDevicePrimaryCtxRelease_v2(0)); fill(p, 1, 3 * MIB); print(free(p))
            q = alloc(3 * MIB)
            ok(cu.cuDevicePrimaryCtxRelease_v2(0)); print(free(q) != 0)
            use(0); r = alloc(MIB); fill(r, 1, MIB); print(free(r))
        """, backing)
        expect(lines, ["0", "True", "0"], backing)
        expect(device(result)["live"]["now_bytes"], 0)


@test
def a_refused_end_changes_nothing():
    lines, _ = said("""
        start(); p = alloc(3 * MIB)
        made = vp(); ok(cu.cuCtxCreate_v2(C.byref(made), 0, 0)); q = alloc(MIB)
        print(cu.cuCtxDestroy_v2(made), free(q), free(alloc(MIB)), free(p))
    """, env={"VRAMSIM_FAULT": "cuCtxDestroy_v2:1:1"})
    expect(lines, ["1 0 0 0"])


@test
def threads_and_resets():
    """A reset between retaining a context and making it current refuses the latter: the next turn tries
    again."""
    for backing in BACKINGS:
        said("""
            start(); stop = False
            def enter():
                context = vp(); ok(cu.cuDevicePrimaryCtxRetain(C.byref(context), 0))
                cu.cuCtxSetCurrent(context)
            def work():
                enter()
                while not stop:
                    r, p = try_alloc(40000)
                    if r == 0: free(p)
                    else: enter()
            ts = [threading.Thread(target=work) for _ in range(4)]
            for t in ts: t.start()
            for _ in range(50): cu.cuDevicePrimaryCtxReset_v2(0); time.sleep(0.002)
            stop = True
            for t in ts: t.join()
            use(0); p = alloc(MIB); fill(p, 3, MIB); assert read(p, MIB) == bytes([3]) * MIB; ok(free(p))
        """, backing)


# Caps


@test
def a_limit_holds_to_the_byte():
    for backing in BACKINGS:
        for limit in (64 * MIB, 64 * MIB - 1, 65 * MIB):
            lines, result = said("""
                start(); held = []
                while True:
                    r, p = try_alloc(2 * MIB)
                    if r: break
                    held.append(p)
                print(len(held), r, p)
                ok(free(held.pop())); print(try_alloc(2 * MIB)[0], try_alloc(2 * MIB)[0])
            """, backing, env={"VRAMSHIM_LIMIT": str(limit)})
            whole = limit // (2 * MIB)
            expect(lines, [f"{whole} 2 0", "0 2"], f"{backing} {limit}")
            of = device(result)
            expect(of["reserved"]["peak_bytes"], whole * 2 * MIB, of["reserved"])
            expect(of["limit_bytes"], limit)
            expect({o["verdict"] for o in result.report()["ooms"]}, {"over-limit"})
            expect("cap-pool-only" in codes(result), True)


@test
def several_contexts_share_a_limit():
    for backing in BACKINGS:
        lines, _ = said("""
            context = start(); a = alloc(20 * MIB)
            made = vp(); ok(cu.cuCtxCreate_v2(C.byref(made), 0, 0)); b = alloc(20 * MIB)
            print(try_alloc(30 * MIB)[0]); ok(cu.cuCtxDestroy_v2(made))
            ok(cu.cuCtxSetCurrent(context)); print(try_alloc(30 * MIB)[0])
        """, backing, env={"VRAMSHIM_LIMIT": "64MiB"})
        expect(lines, ["2", "0"], backing)


@test
def a_cap_holds_without_a_pool():
    # More contexts than there can be pools. Without a cap the driver serves the rest.
    source = """
        start(); results = []
        for _ in range(258):
            context = vp(); ok(cu.cuCtxCreate_v2(C.byref(context), 0, 0))
            ok(cu.cuCtxPopCurrent_v2(C.byref(vp()))); ok(cu.cuCtxSetCurrent(context))
            r, p = try_alloc(4096); results.append(r)
        print(results.count(0), results[-1], p)
        used = info(); r, p = try_alloc(64 * MIB); print(r, used - info() if r else "served")
        pitch, p = size_t(), u64(1)
        print(cu.cuMemAllocPitch_v2(C.byref(p), C.byref(pitch), size_t(100), size_t(10), 4))
    """
    for backing in BACKINGS:
        memory = {"VRAMSIM_MEMORY": "4GiB"}
        lines, result = said(source, backing, env=memory)
        expect([lines[0].split()[:2], lines[1:]], [["258", "0"], ["0 served", "0"]], backing)
        expect_in("no-pool", codes(result), backing)
        lines, result = said(source, backing, env={**memory, "VRAMSHIM_LIMIT": "3GiB"})
        served, *rest = lines[0].split()
        expect(1 <= int(served) <= 255, True, served)
        expect([rest, lines[1:]], [["2", "0"], ["2 0", "2"]], backing)
        expect_in("no-pool-refused", codes(result), backing)
        expect(result.report()["ooms"][0]["verdict"], "over-limit", backing)
        expect(kinds(device(result)).get("plain", 0), 0, backing)


@test
def threads_share_a_limit():
    for backing in BACKINGS:
        lines, result = said("""
            context = start(); got = []
            def work():
                ok(cu.cuCtxSetCurrent(context))
                while True:
                    r, p = try_alloc(2 * MIB)
                    if r: return
                    got.append(p)
            ts = [threading.Thread(target=work) for _ in range(8)]
            for t in ts: t.start()
            for t in ts: t.join()
            print(len(got), len(set(got)))
        """, backing, env={"VRAMSHIM_FRACTION": "0.125"})
        expect(lines, ["64 64"], backing)
        expect(device(result)["reserved"]["peak_bytes"], 128 * MIB)


@test
def a_full_device_is_said():
    for backing in BACKINGS:
        lines, result = said("start(); a = alloc(700 * MIB); print(try_alloc(700 * MIB))", backing)
        expect(lines, ["(2, 0)"])
        oom, = result.report()["ooms"]
        expect((oom["verdict"], oom["requested_bytes"]), ("device-full", 700 * MIB))
        expect(device(result)["requests"]["failed_count"], 1)


@test
def errors_of_the_driver_are_passed_on():
    lines, _ = said("start(); print(try_alloc(3 * MIB)[0], try_alloc(3 * MIB)[0])",
                    env={"VRAMSIM_FAULT": "cuMemAlloc_v2:700:1"})
    expect(lines[0].split()[0], "700")
    lines, _ = said("start(); print(try_alloc(3 * MIB)[0])", "vmm", env={"VRAMSIM_FAULT": "cuMemMap:999:1"})
    expect(lines, ["999"])


# Memory that goes back


@test
def decay_gives_memory_back():
    for backing in BACKINGS:
        lines, result = said("""
            start(); print(decay_thread() is None)
            ps = [alloc(8 * MIB) for _ in range(8)]; keep = alloc(1000)
            t = decay_thread(10); print(t is not None)
            for p in ps: ok(free(p))
            print(len([n for n in threads() if n.startswith("vramshim")]))
            status = open(f"/proc/self/task/{t}/status").read()
            blocked = int(status.split("SigBlk:")[1].split()[0], 16)
            print(all(blocked >> (s - 1) & 1 for s in (1, 2, 10, 12, 15, 17)))
            end = time.monotonic() + 20
            whole = (C.c_uint64(), C.c_uint64())
            def switches():
                s = open(f"/proc/self/task/{t}/status").read()
                return int(s.split("voluntary_ctxt_switches:")[1].split()[0])
            def rests(): # sleeps for good; a tick is 25 ms
                last = switches(); time.sleep(1); return switches() == last
            while time.monotonic() < end and not rests(): pass
            print(rests())
            ok(free(alloc(40 * MIB))); print(rests())
            while time.monotonic() < end and not rests(): pass
            print(rests())
        """, backing, env={"VRAMSHIM_POOL_DECAY_MS": "200"})
        expect(lines, ["True", "True", "1", "True", "True", "False", "True"], backing)
        expect(device(result)["reserved"]["now_bytes"] <= 8 * MIB, True, device(result)["reserved"])
        expect(device(result)["reserved"]["peak_bytes"] >= 64 * MIB, True)


@test
def the_thread_at_rest_makes_no_call():
    """Nor does it wake for frees that leave little idle, before a whole decay time is over; a page wakes it."""
    strace = shutil.which("strace")
    if SANITIZED or not strace or subprocess.run([strace, "-qo", os.devnull, "true"], check=False).returncode:
        print("skipped: an instrumented build, or no strace that works here")
        return
    source = PRELUDE + textwrap.dedent("""
        start(); keep = alloc(1000); small = alloc(1000)
        for p in [alloc(8 * MIB) for _ in range(8)]: ok(free(p))
        t = decay_thread(10); print(t)
        def switches():
            s = open(f"/proc/self/task/{t}/status").read()
            return int(s.split("voluntary_ctxt_switches:")[1].split()[0])
        def rest(period=0.5): # a tick is 0.3 s
            last = -1
            while switches() != last: last = switches(); time.sleep(period)
        rest()
        print(time.time()); time.sleep(3); print(time.time())
        ok(free(alloc(8 * MIB))); time.sleep(1); print(time.time()); rest()
        ok(free(small)); ok(free(alloc(1000))); print(time.time()); time.sleep(1); print(time.time())
    """)
    for backing in BACKINGS:
        with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8") as calls:
            result = run(strace, "-fqttt", "-o", calls.name, sys.executable, "-c", source,
                         env={"VRAMSHIM_BACKING": backing, "VRAMSHIM_POOL_DECAY_MS": "2400"})
            expect((result.code, result.err), (0, ""), backing)
            thread, *times = result.out.split()
            from_, to, woken, little, end = map(float, times)
            made = [(float(line.split()[1]), line) for line in calls if line.split()[0] == thread]
        expect([line for at, line in made if from_ < at < to], [], "at rest")
        expect(any(to < at < woken for at, _ in made), True, "a page became idle")
        expect([line for at, line in made if little < at < end], [], "little became idle")


@test
def decay_can_be_off_or_at_once():
    for backing in BACKINGS:
        source = """
            start(); ps = [alloc(8 * MIB) for _ in range(8)]
            for p in ps: ok(free(p))
            time.sleep(0.2); print(decay_thread() is None)
        """
        lines, result = said(source, backing, env={"VRAMSHIM_POOL_DECAY_MS": "-1"})
        expect(lines, ["True"])
        expect(device(result)["reserved"]["now_bytes"] >= 64 * MIB, True, backing)
        lines, result = said(source, backing, env={"VRAMSHIM_POOL_DECAY_MS": "0"})
        expect(lines, ["True"])
        expect(device(result)["reserved"]["now_bytes"] <= 8 * MIB, True, backing)


@test
def no_thread_without_cuda():
    lines, _ = said("print(threads() == [threads()[0]], decay_thread())")
    expect(lines, ["True None"])
    lines, _ = said("ok(cu.cuInit(0)); print(decay_thread())")
    expect(lines, ["None"])
    lines, _ = said("start(); info(); print(decay_thread())")
    expect(lines, ["None"])


@test
def the_thread_ends_before_the_driver():
    """Every way to the end, with a thread that is busy giving back."""
    for end in ("sys.exit(3)", "os._exit(3)", "os.execv('/bin/sh', ['sh', '-c', 'exit 3'])",
                "os.kill(os.getpid(), 9)"):
        result = python(f"""
            start()
            ps = [alloc(2 * MIB) for _ in range(100)]
            for p in ps: ok(free(p))
            time.sleep(0.02)
            {end}
        """, env={"VRAMSHIM_POOL_DECAY_MS": "8"})
        expect((result.code, result.err), (-9 if "kill" in end else 3, ""), end)


@test
def trim_above():
    for backing in BACKINGS:
        _, result = said("""
            start(); ps = [alloc(4 * MIB) for _ in range(16)]
            for p in ps: ok(free(p))
        """, backing, env={"VRAMSHIM_TRIM_ABOVE": "16MiB", "VRAMSHIM_POOL_DECAY_MS": "-1"})
        of = device(result)
        expect(of["reserved"]["peak_bytes"] >= 64 * MIB, True)
        expect(of["reserved"]["now_bytes"] <= 20 * MIB, True, f"{backing} {of['reserved']}")


@test
def pool_size():
    for backing in BACKINGS:
        _, result = said("start(); ok(free(alloc(1000)))", backing,
                         env={"VRAMSHIM_POOL_SIZE": "100MiB", "VRAMSHIM_POOL_DECAY_MS": "8"})
        expect(device(result)["reserved"]["now_bytes"] >= 100 * MIB, True, backing)
        result = python("print(cu.cuInit(0))", backing,
                        env={"VRAMSHIM_POOL_SIZE": "100MiB", "VRAMSHIM_LIMIT": "64MiB"})
        expect(result.out, "1\n")
        expect_in("VRAMSHIM_POOL_SIZE", result.err)
        _, result = said("start(); ok(free(alloc(1000)))", backing, env={"VRAMSHIM_POOL_SIZE": "2GiB"})
        expect("pool-size" in codes(result), True)


@test
def free_memory_is_told():
    for backing in BACKINGS:
        lines, _ = said("""
            start(); before = info(); p = alloc(64 * MIB); during = info(); ok(free(p))
            print(before - during == 64 * MIB, info() == before)
        """, backing)
        expect(lines, ["True True"], backing)


@test
def free_memory_is_of_one_moment():
    """However it moves meanwhile between the driver and the pool, by decay or by other threads. What
    a call costs leaves time for that between the two readings."""
    scale = 5 if SANITIZED else 1
    for backing in BACKINGS:
        env = {"VRAMSHIM_BACKING": backing, "VRAMSIM_COST": "cuCtxGetDevice:50"}
        for argv, more in (
            (["alone", 20 // scale], {"VRAMSHIM_POOL_DECAY_MS": "1"}),
            (["others", 1000 // scale, "here"], {"VRAMSHIM_TRIM_ABOVE": "0"}),
            (["others", 1000 // scale, "contexts"], {"VRAMSHIM_TRIM_ABOVE": "0"}),
        ):
            result = run("free_memory", *map(str, argv), env={**env, **more})
            expect_fine(result)
            expect(result.out, "wrong 0\nok\n", f"{argv} {env}")


@test
def free_memory_that_never_rests():
    """Two threads do nothing but move it, and each move takes long: they have to wait for a moment.
    What is under way when nobody runs it for long may still be told wrong."""
    cost = ",".join(f"{name}:100" for name in
                    ("cuMemAlloc", "cuMemFreeAsync", "cuMemCreate", "cuMemRelease"))
    for backing in BACKINGS:
        result = run("free_memory", "others", "300", "here",
                     env={"VRAMSHIM_BACKING": backing, "VRAMSHIM_TRIM_ABOVE": "0",
                          "VRAMSIM_COST": cost + ",cuMemGetInfo:30"})
        expect_fine(result)
        wrong = int(result.out.split()[1])
        expect(wrong < 30, True, f"{backing}: {wrong} of 300")


@test
def free_memory_in_32_bits():
    """The first ABI's figure."""
    source = """
        start()
        def info1():
            f, t = C.c_uint32(), C.c_uint32(); ok(cu.cuMemGetInfo(C.byref(f), C.byref(t)))
            return f.value, t.value
        before = info1(); p = alloc(64 * MIB); during = info1(); ok(free(p))
        print((before[0] - during[0]) // MIB, (info1()[0] - before[0]) // MIB)
    """
    for backing in BACKINGS:
        expect(said(source, backing)[0], ["64 0"], backing)
        expect(said(source, backing, env={"VRAMSIM_MEMORY": "8GiB"})[0], ["0 0"], backing)


@test
def decisions_are_said():
    """At level 2 only: each kind, and once a second at most."""
    source = """
        start(); ps = [alloc((i % 7 + 1) * 3 * MIB) for i in range(20)]
        for p in ps[::2]: ok(free(p))
        alloc(60 * MIB)
        for i in range(50): try_alloc(5000 * MIB)
        for p in ps[1::2]: ok(free(p))
    """
    wanted = ["pool with {} backing", "more from the driver for a request of 3MiB", "back to the driver",
              "5000MiB refused: over the limit"]
    for backing in BACKINGS:
        env = {"VRAMSHIM_LIMIT": "300MiB", "VRAMSHIM_TRIM_ABOVE": "8MiB", "VRAMSHIM_REPORT": "none"}
        result = python(source, backing, env={**env, "VRAMSHIM_VERBOSE": "2"})
        expect(result.code, 0, result.err)
        lines = [line for line in result.err.splitlines() if ": device 0: " in line]
        for words in wanted:
            expect_in(words.format(backing), "\n".join(lines))
        expect(len(lines) < 20, True, result.err)
        result = python(source, backing, env={**env, "VRAMSHIM_VERBOSE": "1"})
        expect("device 0" in result.err, False, result.err)
    result = python("""
        start(); ps = [alloc(8 * MIB) for i in range(32)]
        for p in ps[::2]: ok(free(p))
        alloc(100 * MIB)
    """, "vmm", env={"VRAMSHIM_LIMIT": "260MiB", "VRAMSHIM_REPORT": "none", "VRAMSHIM_VERBOSE": "2"})
    expect_in("of free pages mapped where they are needed, for a request of 100MiB", result.err)


# Being out of the way


@test
def a_sanitizer_turns_it_off():
    folder = tempfile.mkdtemp(prefix="vs-test-")
    fake = os.path.join(folder, "libsanitizer-collection.so")
    # Any library under that name will do; one that is loaded anyway has no effect of its own.
    with open(os.path.join(BIN, "libplugin.so"), "rb") as source, open(fake, "wb") as copy:
        copy.write(source.read())
    result = python(f"C.CDLL({fake!r}); start(); alloc(3000)", env={"VRAMSHIM_VERBOSE": "1"})
    expect(result.code, 0, result.err)
    expect_in("compute-sanitizer is at work", result.err)
    expect(codes(result), ["pool-off"])
    expect(kinds(device(result)), {"plain": 3000})
    # The variable alone is inherited by programs that are not watched.
    _, result = said("start(); alloc(3000)", env={"NV_SANITIZER_INJECTION_PORT_BASE": "49152"})
    expect("plain" in kinds(device(result)), False)


@test
def forked_children_start_anew():
    """The child's own CUDA is another matter: here it only must not touch the parent's arenas."""
    for backing in BACKINGS:
        lines, _ = said("""
            start(); p = alloc(3 * MIB); q = alloc(1000); ok(free(alloc(5000)))
            pid = os.fork()
            if pid == 0:
                print(decay_thread(), free(q) != 0, free(0) >= 0, decay_thread())
                sys.stdout.flush(); os._exit(0)
            os.waitpid(pid, 0); print(decay_thread(10) is not None); fill(p, 1, 3 * MIB); print(free(p), free(q))
        """, backing, env={"VRAMSHIM_POOL_DECAY_MS": "80"})
        expect(lines, ["None True True None", "True", "0 0"], backing)


@test
def captures_with_a_pool():
    for backing in BACKINGS:
        lines, _ = said("""
            start(); warm = alloc(1000)
            s = vp(); ok(cu.cuStreamCreate(C.byref(s), 1))
            ok(cu.cuStreamBeginCapture_v2(s, 2))
            p = alloc(3 * MIB); q = alloc(100); ok(free(warm)); ok(free(q))
            ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(5), size_t(MIB), s))
            g = vp(); print(cu.cuStreamEndCapture(s, C.byref(g)))
            ok(cu.cuStreamBeginCapture_v2(s, 0))
            print(try_alloc(1000)[0] != 0, cu.cuStreamEndCapture(s, C.byref(g)) != 0)
        """, backing)
        expect(lines, ["0", "True True"], backing)


# What is said about pointers


@test
def pointers_are_told_apart():
    for backing in BACKINGS:
        lines, _ = said("""
            context = start(); a, b, c = alloc(1000), alloc(3000), alloc(5 * MIB)
            for p, n in ((a, 1000), (b, 3000), (c, 5 * MIB)):
                assert range_of(p) == range_of(p + n - 1) == (0, p, n), range_of(p)
                assert attribute(11, p + 7) == (0, p) and attribute(12, p + 7) == (0, n)
                assert attribute(1, p) == (0, context.value)
                assert attribute(2, p, C.c_uint) == (0, 2) and attribute(3, p + 7) == (0, p + 7)
            ids = [attribute(7, p)[1] for p in (a, b, c)]
            assert len(set(ids)) == 3 and attribute(7, a + 5)[1] == ids[0]
            ok(free(b)); print(range_of(b)[0], range_of(b + 5)[0], attribute(11, b)[0], attribute(2, b, C.c_uint)[0])
            again = alloc(3000); print(attribute(7, again)[1] in ids)
            names = (C.c_int * 3)(2, 12, 7); t, n, i = C.c_uint(9), size_t(77), u64(5)
            data = (vp * 3)(C.addressof(t), C.addressof(n), C.addressof(i))
            print(cu.cuPointerGetAttributes(3, names, data, u64(a + 5)), t.value, n.value, i.value == ids[0])
            ok(free(a)); print(cu.cuPointerGetAttributes(3, names, data, u64(a + 5)), t.value, n.value, i.value)
        """, backing)
        expect(lines, ["500 500 1 1", "False", "0 2 1000 True", "0 0 1000 0"], backing)


# Other processes


SHARE = """
    start()
    small, other, big = alloc(5000), alloc(7000), alloc(6 * MIB)
    fill(small, 5, 5000); fill(other, 7, 7000); fill(big, 6, 6 * MIB); ok(cu.cuCtxSynchronize())
    handles = []
    for p in (small + 100, other, big + 12345):
        h = (C.c_ubyte * 64)(); print(cu.cuIpcGetMemHandle(C.byref(h), u64(p))); handles.append(bytes(h))
    sys.stdout.flush()
    import subprocess
    r = subprocess.run([sys.executable, "-c", os.environ["OPENER"]] + [h.hex() for h in handles],
                       env={k: v for k, v in os.environ.items() if k != os.environ.get("DROP")})
    print(r.returncode, read(small, 5000) == bytes([8]) * 5000, read(other, 7000) == bytes([7]) * 7000)
"""
OPENER = PRELUDE + textwrap.dedent("""
    start()
    class Handle(C.Structure): _fields_ = [("bytes", C.c_ubyte * 64)]
    cu.cuIpcOpenMemHandle_v2.argtypes = [C.POINTER(u64), Handle, C.c_uint]
    def open_(h):
        p = u64(); return cu.cuIpcOpenMemHandle_v2(C.byref(p), h, 1), p.value
    hs = [Handle((C.c_ubyte * 64).from_buffer_copy(bytes.fromhex(a))) for a in sys.argv[1:4]]
    got = [open_(h) for h in hs]
    print([r for r, _ in got])
    if got[0][0] == 0:
        (_, small), (_, other), (_, big) = got
        print(read(small, 5000) == bytes([5]) * 5000, read(other, 7000) == bytes([7]) * 7000,
              read(big, 6 * MIB) == bytes([6]) * (6 * MIB))
        print(range_of(small + 9) == (0, small, 5000), range_of(big)[2])
        print(open_(hs[0]) == (0, small))
        fill(small, 8, 5000); ok(cu.cuCtxSynchronize())
        close = lambda p: cu.cuIpcCloseMemHandle(u64(p))
        print(close(small), close(small), close(small), close(other), close(other), close(big), close(big))
""")


@test
def blocks_of_any_size_can_be_shared():
    lines, _ = said(SHARE, env={"OPENER": OPENER})
    expect(lines, ["0", "0", "0", "[0, 0, 0]", "True True True", "True 6291456", "True",
                   "0 0 1 0 1 0 1", "0 True True"])


@test
def without_the_shim_a_small_one_cannot_be_opened():
    if SANITIZED:
        return  # the preload goes as a whole
    lines, _ = said(SHARE, env={"OPENER": OPENER, "DROP": "LD_PRELOAD"})
    expect(lines[3], "[1, 1, 0]")


@test
def freed_memory_is_shared_no_more():
    lines, _ = said("""
        start(); p = alloc(6 * MIB); h = (C.c_ubyte * 64)()
        ok(cu.cuIpcGetMemHandle(C.byref(h), u64(p))); ok(free(p))
        print(cu.cuIpcGetMemHandle(C.byref(h), u64(p)))
    """)
    expect(lines, ["1"])


@test
def mapped_memory_cannot_be_shared():
    result = python("""
        start(); p = alloc(3 * MIB); h = (C.c_ubyte * 64)()
        print(cu.cuIpcGetMemHandle(C.byref(h), u64(p)) != 0, cu.cuIpcGetMemHandle(C.byref(h), u64(p)) != 0)
    """, "vmm")
    expect((result.code, result.out), (0, "True True\n"))
    expect(result.err.count("VRAMSHIM_BACKING=native"), 1, result.err)


if __name__ == "__main__":
    main(TESTS)
