"""Stream-ordered memory from the pool, in whole programs: who is served and who is not, what the driver
sees of it, what is said of memory pools, and ends of streams, threads and contexts. The programs are a few
lines of Python on the driver API, as in test_pool.py; reuse and waiting are in test_stream_fences.py."""

import textwrap

from harness import MIB, expect, expect_in, main
from test_pool import BACKINGS, codes, device, kinds, said

TESTS = {}


def test(function):
    TESTS[function.__name__] = function
    return function


PRELUDE = """
LEGACY, OWN = vp(1), vp(2)
def stream(flags=1):
    s = vp(); ok(cu.cuStreamCreate(C.byref(s), flags), "cuStreamCreate"); return s
def take_(size, s=None, pool=None):
    p = u64(7)
    r = (cu.cuMemAllocAsync(C.byref(p), size_t(size), s) if pool is None else
         cu.cuMemAllocFromPoolAsync(C.byref(p), size_t(size), pool, s))
    return r, p.value
def take(size, s=None, pool=None):
    r, p = take_(size, s, pool); ok(r, "cuMemAllocAsync"); return p
def give(p, s=None): return cu.cuMemFreeAsync(u64(p), s)
def sync(s=None): ok(cu.cuStreamSynchronize(s), "cuStreamSynchronize")
class Location(C.Structure): _fields_ = [("type", C.c_int), ("id", C.c_int)]
class Access(C.Structure): _fields_ = [("location", Location), ("flags", C.c_int)]
class Props(C.Structure):
    _fields_ = [("type", C.c_int), ("handles", C.c_int), ("location", Location), ("win", vp),
                ("most", size_t), ("rest", C.c_ubyte * 56)]
def pool(device=0, handles=0, most=0):
    p = vp(); props = Props(1, handles, Location(1, device), None, most)
    ok(cu.cuMemPoolCreate(C.byref(p), C.byref(props)), "cuMemPoolCreate"); return p
def standard(device=0):
    p = vp(); ok(cu.cuDeviceGetDefaultMemPool(C.byref(p), device)); return p
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8
def figure(p, name):
    v = u64(99); ok(cu.cuMemPoolGetAttribute(p, name, C.byref(v)), "cuMemPoolGetAttribute"); return v.value
def set_(p, name, value):
    v = u64(value); return cu.cuMemPoolSetAttribute(p, name, C.byref(v))
"""

# No call that would be work of a stream, or ask about it. The error is one that contexts die of: none of
# ours goes without notice.
NO_CALLS = ",".join(
    f"{name}:719:*"
    for name in (
        "cuMemAllocAsync", "cuMemFreeAsync", "cuMemAllocFromPoolAsync", "cuEventRecord", "cuStreamWaitEvent",
        "cuCtxRecordEvent", "cuCtxWaitEvent", "cuEventQuery", "cuEventSynchronize",
    )
)


def program(source, backing="native", **kwargs):
    return said(PRELUDE + textwrap.dedent(source), backing, **kwargs)


def held(result, index=0):
    """What the driver's own pools and the arenas held at most."""
    peaks = {k["kind"]: k["peak_bytes"] for k in device(result, index)["by_kind"]}
    return peaks.get("async", 0), peaks.get("pool", 0)


# Who is served


@test
def a_streams_own_memory_costs_no_call():
    """On streams of every kind: what one frees it takes again."""
    for backing in BACKINGS:
        for on in ("stream()", "stream(0)", "None", "LEGACY", "OWN", "per thread"):
            lines, result = program(f"""
                start(); s = {on if on != "per thread" else "None"}; mine = pool(); there = []
                if {on == "per thread"}:
                    cu.cuMemAllocAsync, cu.cuMemFreeAsync = cu.cuMemAllocAsync_ptsz, cu.cuMemFreeAsync_ptsz
                    cu.cuMemAllocFromPoolAsync = cu.cuMemAllocFromPoolAsync_ptsz
                for size in (1, 5000, MIB, 5 * MIB):
                    for round in range(20):
                        for of in (None, mine): p = take(size, s, of); there.append(p); ok(give(p, s))
                print(len(set(there)))
            """, backing, env={"VRAMSIM_FAULT": NO_CALLS, "VRAMSHIM_POOL_DECAY_MS": "-1"})
            expect(lines, ["4"], f"{backing} {on}")
            of = device(result)
            expect(held(result)[0], 0, f"{backing} {on}")
            expect((of["requests"]["alloc_count"], of["requests"]["free_count"]), (160, 160), f"{backing} {on}")
            expect((of["live"]["now_bytes"], result.report()["leaks"]), (0, []), f"{backing} {on}")
            expect(of["pool"]["hits"] > 150, True, of["pool"])


@test
def what_fences_meet_reaches_the_program():
    """An error that the context dies of, met where a fence is recorded or asked about."""
    for backing in BACKINGS:
        for entry in ("cuEventRecord", "cuEventQuery"):
            lines, _ = program("""
                start(); s, t = stream(), stream(); answers = set()
                for round in range(60):
                    on, other = (s, t) if round % 2 else (t, s)
                    r, p = take_(5 * MIB + round * MIB, on)
                    if r == 0: r = give(p, on)
                    answers.add(r)
                print(sorted(answers))
            """, backing, env={"VRAMSIM_FAULT": f"{entry}:719:*", "VRAMSHIM_LIMIT": "96MiB"})
            expect(lines, ["[0, 719]"], f"{backing} {entry}")


@test
def it_counts_once_and_leaks_are_said():
    for backing in BACKINGS:
        _, result = program("""
            start(); s = stream(); p = take(3000, s); q = take(5 * MIB); r = take(700, OWN)
            ok(give(q)); ok(free(r))
        """, backing)
        of = device(result)
        expect((of["live"]["now_bytes"], of["live"]["now_count"]), (3000, 1), backing)
        expect((of["requests"]["alloc_count"], of["requests"]["free_count"]), (3, 2), backing)
        expect(kinds(of).get("pool"), of["reserved"]["now_bytes"], backing)
        expect(held(result)[0], 0, backing)
        expect([(leak["bytes"], leak["count"]) for leak in result.report()["leaks"]], [(3000, 1)], backing)


@test
def without_a_pool_the_driver_serves():
    _, result = program("""
        start(); s = stream(); p = take(3 * MIB, s); q = take(MIB); ok(give(q))
        d = standard(); print(figure(d, USED) >= 3 * MIB); ok(cu.cuMemPoolTrimTo(d, size_t(0)))
    """, env={"VRAMSHIM_POOL": "off"})
    expect(kinds(device(result)), {"async": 3 * MIB})


@test
def old_drivers_serve_it_themselves():
    """A fence of a stream that is no more is the context's: without those there would be none."""
    _, result = program("""
        start(); s = stream()
        for round in range(10): p = take(3 * MIB, s); ok(give(p, s)); q = alloc(5000); ok(give(q, s))
        sync(s)
    """, env={"VRAMSIM_API": "12040"})
    expect(held(result)[0], 3 * MIB)


@test
def captured_calls_are_the_drivers():
    """They become nodes. Other streams are served meanwhile."""
    for backing in BACKINGS:
        lines, result = program("""
            start(); s, t = stream(), stream(); p = take(MIB, s); ok(give(p, s))
            before = take(5000, s); ok(cu.cuStreamBeginCapture_v2(s, 2))
            r, node = take_(3 * MIB, s); print(r, node != p)
            ok(cu.cuMemsetD8Async(u64(node), C.c_ubyte(5), size_t(MIB), s))
            print(give(before, s), give(node, s))
            for round in range(5): q = take(2 * MIB, t); ok(give(q, t))
            g = vp(); ok(cu.cuStreamEndCapture(s, C.byref(g))); n = size_t()
            ok(cu.cuGraphGetNodes(g, None, C.byref(n))); print(n.value)
            e = vp(); ok(cu.cuGraphInstantiateWithFlags(C.byref(e), g, u64(0)))
            ok(cu.cuGraphLaunch(e, s)); ok(give(before, s)); sync(s)
            q = take(3 * MIB, s); ok(give(q, s))
        """, backing)
        expect(lines, ["0 True", "1 0", "3"], backing)
        expect(held(result)[0], 0, backing)
        expect(device(result)["requests"]["alloc_count"], 8, backing)


@test
def pools_with_wishes_are_the_drivers():
    """Handles for other processes, a size, or access of another device."""
    for backing in BACKINGS:
        lines, result = program("""
            start(); s = stream()
            for p in (pool(handles=1), pool(most=64 * MIB)):
                q = take(3 * MIB, s, p); print(figure(p, USED) == 3 * MIB); ok(give(q, s)); sync(s)
            r, q = take_(MIB, s, vp(0)); print(r)
            mine = pool(); peer = Access(Location(1, 1), 3); own = Access(Location(1, 0), 3)
            ok(cu.cuMemPoolSetAccess(mine, C.byref(own), size_t(1)))
            q = take(5 * MIB, s, mine); ok(give(q, s))
            ok(cu.cuMemPoolSetAccess(mine, C.byref(peer), size_t(1)))
            q = take(4 * MIB, s, mine); ok(give(q, s)); sync(s)
        """, backing, env={"VRAMSIM_DEVICES": "2"})
        expect(lines, ["True", "True", "1"], backing)
        asynchronous, pool = held(result)
        expect((asynchronous, pool >= 5 * MIB), (4 * MIB, True), backing)


@test
def memory_that_is_out_when_a_pool_is_shared():
    """The other device reaches allocations of the driver; mapped memory it does not."""
    source = """
        start(); first = use(0); use(1); use(0); s = stream(); d = standard()
        p = take(5 * MIB, s); fill(p, 7, 5 * MIB); ok(cu.cuCtxSynchronize())
        peer = Access(Location(1, 1), 3); print(cu.cuMemPoolSetAccess(d, C.byref(peer), size_t(1)))
        q = take(MIB, s); sync(s); use(1)
        for where in (p, q):
            print(cu.cuMemsetD8Async(u64(where), C.c_ubyte(3), size_t(MIB), None), cu.cuCtxSynchronize())
        use(0); ok(give(p, s)); ok(give(q, s)); sync(s)
    """
    lines, result = program(source, env={"VRAMSIM_DEVICES": "2"})
    expect(lines, ["0", "0 0", "0 0"])
    expect(held(result)[0], MIB)
    lines, result = program(source.replace("for where in (p, q)", "for where in (q,)"), "vmm",
                            env={"VRAMSIM_DEVICES": "2"})
    expect(lines, ["801", "0 0"])
    expect_in("pool-access", codes(result))


@test
def other_contexts_are_the_drivers():
    """What is taken in the order of their streams outlives them."""
    for backing in BACKINGS:
        lines, result = program("""
            first = start(); a = take(MIB); made = vp(); ok(cu.cuCtxCreate_v2(C.byref(made), 0, 0))
            s = stream(); p = take(3 * MIB, s); q = take(2 * MIB); n = alloc(5000)
            ok(give(n, s)); m = alloc(5000); r = take(700, s); ok(give(r, s))
            ok(cu.cuCtxSynchronize()); ok(cu.cuCtxDestroy_v2(made)); ok(cu.cuCtxSetCurrent(first))
            fill(p, 3, 3 * MIB); print(read(p, 3 * MIB) == bytes([3]) * (3 * MIB), give(p), give(q), give(a))
            ok(cu.cuCtxSynchronize())
        """, backing)
        expect(lines, ["True 0 0 0"], backing)
        expect(held(result)[0] >= 5 * MIB, True, backing)


@test
def each_device_serves_its_streams():
    lines, result = program("""
        start(0); s = stream(); use(1); t = stream(); ps = []
        for on, size in ((s, 3 * MIB), (t, 5 * MIB), (s, 1000), (None, 2 * MIB), (OWN, 700)):
            ps.append(take(size, on))
        print([attribute(9, p, C.c_int)[1] for p in ps])
        print([figure(standard(i), USED) for i in (0, 1)])
        r, q = take_(MIB, s, pool(1)); print(r, attribute(9, q, C.c_int)[1])
        for p in ps: ok(give(p, t))
        ok(give(q, s)); sync(s); sync(t)
    """, env={"VRAMSIM_DEVICES": "2"})
    expect(lines[0], "[0, 1, 0, 1, 1]")
    expect(lines[1], str([3 * MIB + 1024, 7 * MIB + 1024]))
    expect(lines[2], "0 1")
    expect([device(result, i)["live"]["now_bytes"] for i in (0, 1)], [0, 0])


@test
def host_functions_may_not():
    """Not on any stream, also one that the pool knows."""
    source = """
        start(); s = stream(); p = take(5000, s); answers = []
        @C.CFUNCTYPE(None, vp)
        def call(_): answers.extend((take_(700, s)[0], take_(700, LEGACY)[0], give(p, s)))
        ok(cu.cuLaunchHostFunc(s, call, None)); sync(s); print(answers, give(p, s)); sync(s)
    """
    wanted, _ = program(source, env={"VRAMSHIM_POOL": "off"})
    for backing in BACKINGS:
        expect(program(source, backing)[0], wanted, backing)


# What is said of memory pools


@test
def pools_tell_their_figures():
    for backing in BACKINGS:
        lines, _ = program("""
            start(); s = stream(); d = standard(); mine = pool()
            print([figure(d, n) for n in (USED, USED_HIGH, RESERVED, RESERVED_HIGH)])
            ps = [take(n, s) for n in (1, 513, 3 * MIB)]; q = take(5 * MIB, s, mine)
            used = 512 + 1024 + 3 * MIB
            print(figure(d, USED) == used, figure(mine, USED) == 5 * MIB, figure(mine, RESERVED) == 5 * MIB)
            print(figure(d, RESERVED) >= used, figure(d, RESERVED) <= 64 * MIB)
            ok(give(ps[2], s)); ok(free(ps[0])); ok(give(q, s)); sync(s)
            print(figure(d, USED), figure(d, USED_HIGH) == used, figure(mine, USED), figure(mine, RESERVED))
            print(figure(d, RESERVED_HIGH) >= figure(d, RESERVED), set_(d, USED_HIGH, 0), set_(d, USED_HIGH, 1))
            print(figure(d, USED_HIGH), set_(mine, RESERVED_HIGH, 0), figure(mine, RESERVED_HIGH))
            ok(cu.cuMemPoolTrimTo(d, size_t(0))); print(figure(d, RESERVED) < 3 * MIB)
            v = C.c_int(9); ok(cu.cuMemPoolGetAttribute(d, 1, C.byref(v))); print(v.value)
        """, backing)
        expect(lines, ["[0, 0, 0, 0]", "True True True", "True True", "1024 True 0 0", "True 0 1",
                       "1024 0 0", "True", "1"], backing)


@test
def the_current_pool_is_the_programs_choice():
    for backing in BACKINGS:
        lines, _ = program("""
            start(); s = stream(); d, mine = standard(), pool(); a = take(MIB, s)
            print(cu.cuDeviceSetMemPool(0, mine)); b = take(2 * MIB, s)
            print(figure(d, USED), figure(mine, USED))
            handle = lambda p: attribute(17, p, u64)
            print(handle(a) == (0, d.value), handle(b) == (0, mine.value), handle(alloc(5000)))
            print(cu.cuMemPoolDestroy(mine)); c = take(4 * MIB, s)
            print(figure(d, USED) - MIB, handle(b)[0], give(b, s)); sync(s)
            again = pool(); print(figure(again, USED), figure(again, USED_HIGH))
            print(cu.cuMemPoolDestroy(d), handle(c) == (0, d.value), figure(d, USED) - MIB)
            e = take(MIB, s, d); ok(give(e, s))
        """, backing)
        expect(lines, ["0", f"{MIB} {2 * MIB}", "True True (0, 0)", "0", f"{4 * MIB} 0 0", "0 0",
                       f"1 True {4 * MIB}"], backing)


@test
def pointers_are_a_pools():
    for backing in BACKINGS:
        lines, _ = program("""
            context = start(); s = stream(); a, b = take(5000, s), take(6 * MIB, s)
            for p, n in ((a, 5000), (b, 6 * MIB)):
                assert range_of(p) == range_of(p + n - 1) == (0, p, n), range_of(p)
                assert attribute(11, p + 7) == (0, p) and attribute(12, p + 7) == (0, n)
            h = (C.c_ubyte * 64)(); print([cu.cuIpcGetMemHandle(C.byref(h), u64(p)) for p in (a, b, b + 5)])
            print([attribute(10, p, C.c_int) for p in (a, b)])
            names = (C.c_int * 2)(17, 10); v, n = u64(5), C.c_int(9); data = (vp * 2)(C.addressof(v), C.addressof(n))
            ok(cu.cuPointerGetAttributes(2, names, data, u64(a + 5))); print(v.value == standard().value, n.value)
            data = (C.c_ubyte * 64)(); print(cu.cuMemPoolExportPointer(C.byref(data), u64(b)))
            ok(give(b, s)); sync(s); print(range_of(b)[0], attribute(11, b)[0])
        """, backing)
        expect(lines, ["[1, 1, 1]", "[(0, 0), (0, 0)]", "True 0", "1", "500 1"], backing)


@test
def trimming_gives_back_what_has_passed():
    for backing in BACKINGS:
        lines, result = program("""
            start(); s, t = stream(), stream(); d = standard()
            ps = [take(8 * MIB, on) for on in (s, t) for _ in range(4)]; free_ = info()
            for i, p in enumerate(ps): ok(give(p, s if i < 4 else t))
            print(figure(d, USED), figure(d, RESERVED) >= 64 * MIB)
            ok(cu.cuMemPoolTrimTo(d, size_t(16 * MIB))); print(16 * MIB <= figure(d, RESERVED) < 48 * MIB)
            ok(cu.cuMemPoolTrimTo(d, size_t(0))); print(figure(d, RESERVED), info() - free_ >= 64 * MIB)
        """, backing)
        expect(lines, ["0 True", "True", "0 True"], backing)
        expect(device(result)["reserved"]["now_bytes"], 0, backing)


@test
def thresholds_hold_against_decay():
    for backing in BACKINGS:
        lines, _ = program("""
            start(); s = stream(); d = standard()
            def later(p):
                end = time.monotonic() + 20
                while time.monotonic() < end and figure(d, RESERVED) > p: time.sleep(0.02)
                time.sleep(0.3); return figure(d, RESERVED)
            ok(set_(d, THRESHOLD, 24 * MIB)); print(figure(d, THRESHOLD) == 24 * MIB)
            def round():
                ps = [take(8 * MIB, s) for _ in range(8)]
                for p in ps: ok(give(p, s))
                sync(s)
            round(); print(20 * MIB <= later(40 * MIB) <= 40 * MIB)
            ok(set_(d, THRESHOLD, (1 << 64) - 1)); round(); time.sleep(0.5); print(figure(d, RESERVED) >= 64 * MIB)
            ok(set_(d, THRESHOLD, 0)); round(); print(later(0))
        """, backing, env={"VRAMSHIM_POOL_DECAY_MS": "80"})
        expect(lines, ["True", "True", "True", "0"], backing)


# Caps


@test
def a_limit_holds():
    for backing in BACKINGS:
        lines, result = program("""
            start(); s, t = stream(), stream(); held = []
            while True:
                r, p = take_(8 * MIB, s)
                if r: break
                held.append(p)
            print(len(held), r, p)
            ok(give(held.pop(), s)); r, p = take_(8 * MIB, t); print(r, take_(8 * MIB, s)[0])
            ok(give(p, t)); ok(cu.cuCtxSynchronize()); q = alloc(8 * MIB); print(try_alloc(MIB)[0])
        """, backing, env={"VRAMSHIM_LIMIT": "64MiB"})
        expect(lines, ["8 2 7", "0 2", "2"], backing)
        of = device(result)
        expect(of["reserved"]["peak_bytes"], 64 * MIB, backing)
        expect({(o["verdict"], o["requested_bytes"]) for o in result.report()["ooms"]},
               {("over-limit", 8 * MIB), ("over-limit", MIB)}, backing)
        expect(of["requests"]["failed_count"], 3, backing)


# What the program knows


@test
def memory_follows_the_programs_events():
    """At a cap that leaves no choice: neither does anybody wait, nor is a fence recorded."""
    for backing in BACKINGS:
        for how in ("wait", "query", "synchronize", "stream", "stream query", "context"):
            _, result = program(f"""
                start(); s, t = stream(), stream(); e = vp(); ok(cu.cuEventCreate(C.byref(e), 2))
                for on in (s, t): ok(give(take(700, on), on))
                how = {how!r}
                for round in range(20):
                    a, b = (s, t) if round % 2 else (t, s)
                    p = take(40 * MIB, a); ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(round), size_t(4096), a))
                    ok(give(p, a))
                    if how == "stream": sync(a)
                    elif how == "context": ok(cu.cuCtxSynchronize())
                    elif how == "stream query":
                        while cu.cuStreamQuery(a): pass
                    else:
                        ok(cu.cuEventRecord(e, a))
                        if how == "wait": ok(cu.cuStreamWaitEvent(b, e, 0))
                        elif how == "synchronize": ok(cu.cuEventSynchronize(e))
                        else:
                            while cu.cuEventQuery(e): pass
            """, backing, env={"VRAMSHIM_LIMIT": "64MiB"})
            of = device(result)["pool"]
            expect((of["waits"], of["orders"], held(result)[0]), (0, 0, 0), f"{backing} {how} {of}")


LAUNCH = "ok(cu.cuGraphInstantiateWithFlags(C.byref(x), g, u64(0))); ok(cu.cuGraphLaunch(x, u)); sync(u)"


@test
def the_legacy_streams_order_is_in_frees():
    """A free in a blocking stream comes after the legacy stream's work, one in that after theirs. What the
    host then sees of the free's stream holds for that work too: the simulator looks whether it is over."""
    for backing in BACKINGS:
        lines, _ = program("""
            start(); other, some = stream(), stream(0)
            def used_and_freed(user, freer, ask, plain):
                q, p = u64(), take(4 << 20, freer); sync(freer)
                ok(cu.cuMemsetD8Async(u64(p), 1, size_t(4 << 20), user))
                ok(give(p, freer))
                if not plain: q.value = take(4 << 20, freer)
                while ask(freer) == 600: pass
                if plain: ok(cu.cuMemAlloc_v2(C.byref(q), size_t(4 << 20)))
                ok(cu.cuMemsetD8Async(q, 2, size_t(4 << 20), other)); sync(other)
                ok(cu.cuMemFree_v2(q)); ok(cu.cuCtxSynchronize())
                return q.value == p
            print(all(used_and_freed(*streams, ask, plain)
                      for streams in ((None, some), (some, None), (None, OWN), (OWN, LEGACY))
                      for ask in (cu.cuStreamSynchronize, cu.cuStreamQuery) for plain in (False, True)))
        """, backing)
        expect(lines, ["True"], backing)


@test
def events_that_are_recorded_out_of_sight_say_nothing():
    """A note of an event holds for its last recording only. Each of these makes it somebody else's, whose
    end is not that of the stream's work: the memory must not be handed on."""
    spoilt = {
        "another stream": "ok(cu.cuEventRecord(e, u))",
        "a context": "ok(cu.cuCtxRecordEvent(first, e))",
        "destroyed": "ok(cu.cuEventDestroy_v2(e)); ok(cu.cuEventCreate(C.byref(e), 2))",
        "a graph": "ok(cu.cuGraphCreate(C.byref(g), 0)); "
                   "ok(cu.cuGraphAddEventRecordNode(C.byref(n), g, None, size_t(0), e)); " + LAUNCH,
        "a graph by parameters": "ok(cu.cuGraphCreate(C.byref(g), 0)); what = (u64 * 32)(7, 0, e.value); "
                                 "ok(cu.cuGraphAddNode_v2(C.byref(n), g, None, None, size_t(0), what)); " + LAUNCH,
        "a captured node": "ok(cu.cuStreamBeginCapture_v2(u, 2)); ok(cu.cuEventRecordWithFlags(e, u, 1)); "
                           "ok(cu.cuStreamEndCapture(u, C.byref(g))); " + LAUNCH,
    }
    for backing in BACKINGS:
        for name, how in spoilt.items():
            lines, result = program(f"""
                start(); s, t, u = stream(), stream(), stream(); e, g, n, x = vp(), vp(), vp(), vp(); first = use(0)
                ok(cu.cuEventCreate(C.byref(e), 2)); flag = alloc(4); fill(flag, 0, 4); ok(cu.cuCtxSynchronize())
                p = take(40 * MIB, s); ok(cu.cuStreamWaitValue32_v2(s, u64(flag), C.c_uint(1), 0))
                ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(1), size_t(40 * MIB), s)); ok(give(p, s))
                ok(cu.cuEventRecord(e, s))
                {how}
                cu.cuEventQuery(e); ok(cu.cuStreamWaitEvent(t, e, 0))
                r, q = take_(16 * MIB, t); print(r, q == p)
                ok(cu.cuMemsetD8Async(u64(q), C.c_ubyte(2), size_t(16 * MIB), t))
                ok(cu.cuStreamWriteValue32_v2(u, u64(flag), C.c_uint(1), 0)); ok(cu.cuCtxSynchronize())
                print(set(read(q, 16 * MIB)))
            """, backing, env={"VRAMSHIM_LIMIT": "64MiB"})
            expect(lines, ["0 False", "{2}"], f"{backing} {name}")
            expect(held(result)[0], 0)


# Ends


@test
def streams_come_and_go():
    """Each leaves memory behind, freed and live; their numbers are used again, also where the memory was
    handed on before its work was over."""
    for backing in BACKINGS:
        for latency in ("0", "500"):
            _, result = program("""
                start(); kept = []
                for round in range(300):
                    s = stream(); p, q = take(3 * MIB, s), take(700, s)
                    ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(1), size_t(MIB), s)); ok(give(p, s)); kept.append(q)
                    ok(cu.cuStreamDestroy_v2(s))
                    if round % 10 == 9: ok(cu.cuCtxSynchronize())
                for q in kept: ok(give(q))
            """, backing, env={"VRAMSIM_LATENCY": latency})
            of, where = device(result)["reserved"], f"{backing} {latency}"
            expect("many-streams" in codes(result), False, where)
            expect(held(result)[0], 0, where)
            expect(of["peak_bytes"] < 200 * MIB, True, f"{where} {of}")


@test
def threads_come_and_go():
    """Their default streams, too, though nobody says so."""
    for backing in BACKINGS:
        _, result = program("""
            context = start()
            def work():
                ok(cu.cuCtxSetCurrent(context)); p = take(MIB, OWN); q = take(900, OWN)
                ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(1), size_t(MIB), OWN)); ok(give(p, OWN)); ok(give(q, OWN))
            for round in range(200):
                in_thread(work)
                if round % 50 == 49: ok(cu.cuCtxSynchronize()); time.sleep(0.15)
        """, backing)
        expect(device(result)["requests"]["alloc_count"], 400)
        expect(held(result)[0] <= MIB + 900, True, f"{backing} {held(result)}")


@test
def more_streams_than_numbers():
    for backing in BACKINGS:
        _, result = program("""
            start(); streams = [stream() for _ in range(80)]; ps = []
            for round in range(3):
                for i, s in enumerate(streams):
                    p = take(5000, s); ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(i), size_t(5000), s)); ps.append((p, s, i))
                ok(cu.cuCtxSynchronize())
                for p, s, i in ps: assert read(p, 5000) == bytes([i]) * 5000; ok(give(p, s))
                ps = []
            for s in streams[:40]: ok(cu.cuStreamDestroy_v2(s))
            q = alloc(5000); ok(give(q, streams[79])); ok(cu.cuCtxSynchronize())
        """, backing)
        asynchronous, pool = held(result)
        expect((16 * 5000, pool > 0), (asynchronous, True), backing)
        expect_in("many-streams", codes(result), backing)
        expect(device(result)["requests"]["free_count"], 241, backing)


@test
def contexts_take_it_along():
    for backing in BACKINGS:
        lines, result = program("""
            start(); d = standard()
            for round in range(20):
                s = stream(); p = take(3 * MIB, s); q = take(700); r = take(5 * MIB, s); ok(give(r, s))
                fill(p, 1, 3 * MIB); ok(cu.cuDevicePrimaryCtxReset_v2(0)); use(0)
            print(figure(d, USED), free(q))
            s = stream(); p = take(MIB, s); ok(give(p, s)); sync(s); print(figure(d, USED))
        """, backing)
        expect(lines, ["0 1", "0"], backing)
        expect(held(result)[0], 0, backing)
        expect(device(result)["live"]["now_bytes"], 0, backing)


@test
def streams_of_contexts_that_go():
    """Memory of one context that was freed on streams of another, which is destroyed then."""
    for backing in BACKINGS:
        lines, result = program("""
            first = start(); a = take(MIB)
            for round in range(20):
                ok(cu.cuCtxSetCurrent(first)); p, q = alloc(6 * MIB), take(6 * MIB); ok(cu.cuCtxSynchronize())
                made = vp(); ok(cu.cuCtxCreate_v2(C.byref(made), 0, 0)); s = stream()
                ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(1), size_t(6 * MIB), s)); ok(give(p, s)); ok(give(q))
                ok(cu.cuCtxDestroy_v2(made))
            ok(cu.cuCtxSetCurrent(first)); p = alloc(6 * MIB); fill(p, 2, 6 * MIB); print(set(read(p, 6 * MIB)))
        """, backing, env={"VRAMSHIM_LIMIT": "48MiB"})
        expect(lines, ["{2}"], backing)


@test
def forked_children_know_of_no_stream():
    for backing in BACKINGS:
        lines, _ = program("""
            start(); s = stream(); d = standard(); p = take(3 * MIB, s); q = take(700); ok(give(take(5000, s), s))
            pid = os.fork()
            if pid == 0:
                print(give(q) != 0, take_(700, s)[0] != 0, cu.cuStreamSynchronize(s) != 0, cu.cuMemPoolTrimTo(d, size_t(0)) != 0)
                sys.stdout.flush(); os._exit(0)
            os.waitpid(pid, 0); print(give(p, s), give(q), figure(d, USED)); sync(s)
        """, backing)
        expect(lines, ["True True True True", "0 0 0"], backing)


@test
def green_contexts_are_the_primarys():
    for backing in BACKINGS:
        lines, result = program("""
            first = start(); a = take(MIB)
            resource = (C.c_ubyte * 256)(); ok(cu.cuDeviceGetDevResource(0, C.byref(resource), 1))
            desc, green, context = vp(), vp(), vp()
            ok(cu.cuDevResourceGenerateDesc(C.byref(desc), C.byref(resource), 1))
            for round in range(10):
                ok(cu.cuGreenCtxCreate(C.byref(green), desc, 0, 1)); s = vp()
                ok(cu.cuGreenCtxStreamCreate(C.byref(s), green, 1, 0)); ok(cu.cuCtxFromGreenCtx(C.byref(context), green))
                p = take(5 * MIB, s); ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(1), size_t(5 * MIB), s)); ok(give(p, s))
                ok(cu.cuCtxSetCurrent(context)); q = take(2 * MIB); ok(give(q)); r = alloc(5000); ok(give(r, s))
                ok(cu.cuCtxSetCurrent(first)); t = stream(); p = take(5 * MIB, t)
                ok(cu.cuMemsetD8Async(u64(p), C.c_ubyte(2), size_t(5 * MIB), t)); ok(give(p, t))
                if round % 2: ok(cu.cuStreamDestroy_v2(s))
                ok(cu.cuGreenCtxDestroy(green)); ok(cu.cuStreamDestroy_v2(t))
            ok(cu.cuCtxSynchronize()); ok(give(a)); print("fine")
        """, backing, env={"VRAMSHIM_LIMIT": "40MiB"})
        expect(lines, ["fine"], backing)
        expect(held(result)[0], 0, backing)


if __name__ == "__main__":
    main(TESTS)
