"""Tests of gpu-check itself: verdicts, merging, tables, statistics, time limits. Needs no GPU."""
import copy
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

from . import (checks_conformance, checks_frameworks, checks_native, checks_pool, checks_processes,
               checks_streams, checks_time, checks_train, core, reports, results, stats, targets, turns)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def client_source(name):
    with open(os.path.join(ROOT, "tests", "clients", name), encoding="utf-8") as file:
        return file.read()


def a_report(**changes):
    """A sound report of a process with one device; changes go into its counts."""
    numbers = {"alloc_count": 3, "free_count": 2, "alloc_bytes": 600, "failed_count": 1,
               "now_bytes": 100, "now_count": 1, "peak_bytes": 500, "end": "exit", "exit_code": 0,
               "pid": 10}
    numbers.update(changes)
    return {
        "schema": "vramshim.report/1", "exporter": "test",
        "process": {"pid": numbers["pid"], "ppid": 1, "executable": "/x", "argv": ["x"], "host": "h",
                    "rank": None, "started_at": "2026-01-01T00:00:00Z", "duration_ns": 5,
                    "end": numbers["end"], "exit_code": numbers["exit_code"], "signal": None},
        "options": {},
        "devices": [{
            "index": 0, "uuid": "GPU-0", "name": "n", "total_bytes": 1000, "limit_bytes": None,
            "live": {"now_bytes": numbers["now_bytes"], "peak_bytes": numbers["peak_bytes"],
                     "peak_at_ns": 3, "now_count": numbers["now_count"]},
            "reserved": {}, "used": {}, "host_pinned": {}, "pool": {}, "fragmentation": {},
            "by_kind": [{"kind": "plain", "now_bytes": numbers["now_bytes"],
                         "peak_bytes": numbers["peak_bytes"]}],
            "requests": {key: numbers[key] for key in ("alloc_count", "free_count", "alloc_bytes",
                                                       "failed_count")}}],
        "leaks": [{"site": None, "device": 0, "bytes": numbers["now_bytes"],
                   "count": numbers["now_count"]}],
        "timeline": {"columns": ["t_ns", "device"], "rows": [[0, 0]]}}


EXPECT = {"alloc_count": 3, "free_count": 2, "alloc_bytes": 600, "failed_count": 1, "live_bytes": 100,
          "live_count": 1, "peak_bytes": 500, "leak_bytes": 100, "leak_count": 1, "plain_peak": 500,
          "async_peak": 0, "managed_peak": 0}


def a_result(out="", err="", code=0, report=None, facts=None, timed_out=False):
    result = core.Result(["program"], code, out, err, 1.0, timed_out)
    result.report, result.facts = report, facts
    result.report_error = None if report else "no report was written"
    return result


class Reports(unittest.TestCase):
    def test_a_sound_report_has_no_problems(self):
        self.assertEqual(reports.structure_problems(a_report()), [])
        self.assertEqual(reports.expectation_problems(a_report(), EXPECT), [])

    def test_every_missing_part_is_found(self):
        for path in (("schema",), ("process",), ("process", "end"), ("devices",), ("leaks",),
                     ("timeline",), ("devices", 0, "live", "now_count"),
                     ("devices", 0, "requests", "failed_count"), ("devices", 0, "by_kind")):
            report = a_report()
            place = report
            for key in path[:-1]:
                place = place[key]
            del place[path[-1]]
            self.assertTrue(reports.structure_problems(report), path)

    def test_contradictions_are_found(self):
        self.assertTrue(reports.structure_problems(a_report(now_bytes=501)))
        self.assertTrue(reports.structure_problems(a_report(end="vanished")))
        wrong = a_report()
        wrong["timeline"]["rows"] = [[0]]
        self.assertTrue(reports.structure_problems(wrong))
        wrong["timeline"]["rows"] = [[0, 0]] * 2049
        self.assertTrue(reports.structure_problems(wrong))

    def test_each_number_is_compared(self):
        for key in EXPECT:
            off = {**EXPECT, key: EXPECT[key] + 1}
            self.assertEqual(len(reports.expectation_problems(a_report(), off)), 1, key)
            self.assertEqual(reports.expectation_problems(a_report(), {**off, key: None}), [])

    def test_a_missing_or_broken_file(self):
        self.assertEqual(reports.load("/nonexistent/x.json"), (None, "no report was written"))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write("{")
            file.flush()
            self.assertIn("cannot be read", reports.load(file.name)[1])


class Verdicts(unittest.TestCase):
    out = "fact: 1\nexpect: " + json.dumps(EXPECT) + "\n"

    def judge(self, native, shim, code=0, end="exit"):
        return checks_native.judge("c", "what", native, shim, code, end)

    def test_same_is_ok(self):
        row = self.judge(a_result(self.out), a_result(self.out, report=a_report()))
        self.assertEqual((row["verdict"], row["detail"]), ("ok", ""))

    def test_what_fails(self):
        good = a_result(self.out, report=a_report())
        for name, native, shim in (
                ("other output", a_result("fact: 2\n" + self.out), good),
                ("a crash", a_result(self.out), a_result(self.out, code=-11, report=a_report())),
                ("both crash", a_result(self.out, code=-11),
                 a_result(self.out, code=-11, report=a_report())),
                ("a hang", a_result(self.out),
                 a_result(self.out, timed_out=True, report=a_report())),
                ("noise", a_result(self.out), a_result(self.out, "vramshim: x\n", report=a_report())),
                ("other stderr", a_result(self.out), a_result(self.out, "x\n", report=a_report())),
                ("no report", a_result(self.out), a_result(self.out)),
                ("no tally", a_result("x\n"), a_result("x\n", report=a_report())),
                ("a wrong count", a_result(self.out),
                 a_result(self.out, report=a_report(alloc_count=4))),
                ("a wrong end", a_result(self.out), a_result(self.out, report=a_report(end="_exit"))),
                ("a wrong code", a_result(self.out),
                 a_result(self.out, report=a_report(exit_code=1)))):
            row = self.judge(native, shim)
            self.assertEqual(row["verdict"], "FAIL", name)
            self.assertTrue(row["detail"], name)

    def test_conformance_four_ways(self):
        def ways(lookup="dlsym", **texts):
            names = ("gpu native", "gpu shim", *checks_conformance.FORCED, "sim native", "sim shim")
            if lookup != "dlsym":
                names = names[:2]
            return {name: a_result(texts.get(name.replace(" ", "_").replace(",", ""), "a\n2 facts\n"),
                                   report=a_report() if name.startswith("gpu shim") else None)
                    for name in names}

        def kinds(found_ways):
            return [bool(texts) for texts in checks_conformance.problems(found_ways)]

        fine, program, shim, sim = ([False] * 3, [True, False, False], [False, True, False],
                                    [False, False, True])
        self.assertEqual(kinds(ways()), fine)
        self.assertEqual(kinds(ways("direct")), fine)
        for name, expected in (("gpu_shim", shim), ("gpu_shim_vmm_backing", shim),
                               ("gpu_shim_native_backing", shim), ("sim_native", sim),
                               ("sim_shim", sim)):
            self.assertEqual(kinds(ways(**{name: "b\n2 facts\n"})), expected, name)
        absent, cut = "not here: no such call\n", "a\n"
        everywhere = ("gpu_native", "gpu_shim", "gpu_shim_vmm_backing", "gpu_shim_native_backing",
                      "sim_native", "sim_shim")
        self.assertEqual(kinds(ways(**dict.fromkeys(everywhere, absent))), fine)
        self.assertEqual(kinds(ways(gpu_shim=absent)), shim)
        self.assertEqual(kinds(ways(**dict.fromkeys(everywhere, cut))), program)
        self.assertEqual(kinds(ways(gpu_shim=cut)), shim)
        noisy = ways()
        noisy["gpu shim"].err = "vramshim: oh\n"
        self.assertEqual(kinds(noisy), shim)
        broken = ways()
        del broken["gpu shim, native backing"].report["process"]
        self.assertEqual(kinds(broken), shim)

    def test_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            fact = {"pid": 10, "role": "child", "cuda": True, "bytes": 500, "count": 3}

            def put(pid, **changes):
                with open(os.path.join(folder, f"{pid}.json"), "w", encoding="utf-8") as file:
                    json.dump(a_report(pid=pid, **changes), file)

            self.assertTrue(checks_processes.process_problems(folder, [fact]))
            put(10)
            self.assertEqual(checks_processes.process_problems(folder, [fact]), [])
            self.assertTrue(checks_processes.process_problems(folder, [{**fact, "bytes": 501}]))
            self.assertTrue(checks_processes.process_problems(folder, [{**fact, "cuda": False}]))
            put(11)
            self.assertTrue(checks_processes.process_problems(folder, [fact]))

    def test_torch_expectations(self):
        facts = {"num_device_alloc": 10, "num_device_free": 2, "reserved_bytes.all.allocated": 1000,
                 "segments_bytes": 800, "segments_count": 8, "reserved_bytes.all.peak": 900}
        cached = {"allocation.all.allocated": 500, "requested_bytes.all.allocated": 12345}
        expected = checks_frameworks.torch_expected("default", facts, cached, (1, 64))
        self.assertEqual((expected["alloc_count"], expected["peak_bytes"], expected["live_bytes"]),
                         (11, 964, 864))
        expected = checks_frameworks.torch_expected("no cache", facts, cached, (1, 64))
        self.assertEqual((expected["alloc_count"], expected["alloc_bytes"]), (501, 12409))

    def test_micro_rows(self):
        native = [{"async pair": 580.0 + i, "pair 4 MiB": 60000.0 + i, "x": 5.0} for i in range(12)]
        shim = [{k: v + (100 if k == "async pair" else 1) for k, v in n.items()} for n in native]
        verdicts = {r["what"].split(": ")[1]: r["verdict"]
                    for r in checks_time.micro_rows("c", native, shim)}
        self.assertEqual(verdicts, {"async pair": "ok", "pair 4 MiB": "ok", "x": "info"})
        shim = [{k: v * 2 for k, v in n.items()} for n in native]
        self.assertEqual([r["verdict"] for r in checks_time.micro_rows("c", native, shim)],
                         ["FAIL", "FAIL", "info"])

    def test_micro_rows_within_one_process(self):
        native = [{"async pair": 900.0, "async pair, the driver alone": 900.0}] * 12
        shim = [{"async pair": 700.0 + i, "async pair, the driver alone": 600.0 + i} for i in range(12)]
        rows = checks_time.micro_rows("c", native, shim)
        self.assertEqual([(r["verdict"], r["native"]) for r in rows], [("ok", "605.5 ns")])
        self.assertIn("added 100.0 ns", rows[0]["shim"])


def a_pool_report(backing="vmm", reserved=525, pool_peak=525, **changes):
    """A report of a process whose plain memory the pool served: charged as what the pool holds."""
    report = a_report(**changes)
    device = report["devices"][0]
    device["pool"] = {"backing": backing, "hits": 5, "misses": 1, "waits": 0, "wait_ns": 0,
                      "remapped_bytes": 0}
    device["reserved"] = {"now_bytes": reserved, "peak_bytes": reserved}
    device["used"] = {"now_bytes": reserved, "peak_bytes": reserved}
    device["by_kind"] = [{"kind": "pool", "now_bytes": pool_peak, "peak_bytes": pool_peak}]
    return report


def with_async(report):
    """The same, with memory in the driver's stream-ordered pools."""
    report["devices"][0]["by_kind"].append({"kind": "async", "now_bytes": 0, "peak_bytes": 4096})
    return report


class Pools(unittest.TestCase):
    def test_plain_memory_may_be_in_the_pool(self):
        problems = reports.expectation_problems
        self.assertEqual(problems(a_pool_report(), EXPECT), [])
        self.assertEqual(len(problems(a_pool_report(pool_peak=499), EXPECT)), 1)
        both = a_pool_report(pool_peak=400)
        both["devices"][0]["by_kind"].append({"kind": "plain", "now_bytes": 0, "peak_bytes": 100})
        self.assertEqual(problems(both, EXPECT), [])
        both["devices"][0]["by_kind"][1]["peak_bytes"] = 501
        self.assertEqual(len(problems(both, EXPECT)), 1)
        self.assertEqual(len(problems(a_pool_report(alloc_count=4), EXPECT)), 1)
        # Without a pool nothing excuses a missing kind.
        self.assertEqual(len(problems(a_pool_report(backing=None, pool_peak=0), EXPECT)), 1)

    def test_backings(self):
        for report, backing, fine in ((a_pool_report(), None, True), (a_pool_report(), "vmm", True),
                                      (a_pool_report(), "native", False), (a_pool_report(), False, False),
                                      (a_report(), None, False), (a_report(), "vmm", False),
                                      (a_report(), False, True)):
            self.assertEqual(not reports.backing_problems(report, backing), fine, backing)
        self.assertTrue(reports.backing_problems(a_pool_report(backing=None), False))
        self.assertEqual(reports.peaks(a_pool_report()), (500, 525))
        self.assertIn("vmm: live peak 500 B, reserved 525 B, 5 hits", reports.pool_summary(a_pool_report()))
        self.assertIn("no pool", reports.pool_summary(a_report()))

    def test_pool_of_the_torch_modes(self):
        check = checks_frameworks.pool_problems
        self.assertEqual(check("default", a_pool_report()), [])
        self.assertTrue(check("default", a_report()))
        self.assertEqual(check("expandable_segments", a_report()), [])
        self.assertEqual(check("backend:cudaMallocAsync", a_pool_report()), [])
        self.assertEqual(check("backend:cudaMallocAsync, vmm backing", a_pool_report()), [])
        self.assertTrue(check("backend:cudaMallocAsync, vmm backing", a_pool_report(backing="native")))
        self.assertTrue(check("backend:cudaMallocAsync", with_async(a_pool_report())))
        self.assertEqual(check("no cache, native backing", a_pool_report(backing="native")), [])
        self.assertTrue(check("no cache, native backing", a_pool_report()))

    def test_targets(self):
        row = targets.at_most("c", "w", "n", (0.9, 0.8, 0.95), 1.0)
        self.assertEqual((row["verdict"], row["shim"]),
                         ("ok", "0.9000 (95%: 0.8000–0.9500); target ≤ 1.0000: met"))
        self.assertEqual(targets.at_most("c", "w", "n", (0.9, 0.8, 1.1), 1.0)["verdict"], "unclear")
        row = targets.at_most("c", "w", "n", [("a", (0.5, 0.5, 0.5)), ("b", (2, 1.5, 2.5))], 1.0)
        self.assertEqual(row["verdict"], "FAIL")
        self.assertIn("NOT met", row["shim"])
        self.assertEqual(targets.at_most("c", "w", "n", (2, 2, 2), None)["verdict"], "info")
        row = targets.at_most("c", "w", "n", targets.exactly(1 / 250), 1 / 200)
        self.assertEqual((row["verdict"], row["shim"]), ("ok", "1/250; target ≤ 1/200: met"))
        self.assertRaises(ValueError, targets.at_most, "c", "w", "n", [], 1.0)

    def bench_answers(self, backing_ns):
        """Answers of a round to each command of the bench, as its partners would give them."""
        found = {}
        for key, partner, text in checks_pool.plan(("vmm",)):
            words = text.split()
            ns = {"async": 600.0, "plain": 60000.0}[words[1]] if partner == checks_pool.DRIVER else backing_ns
            if words[0] == "threads":
                ns = 200.0 if words[1] == "1" else 40.0
            found[key] = [{"ns": ns * (1 + i / 1000), "host_ns": ns, "handed": 3} for i in range(16)]
        found[(checks_pool.DRIVER, "replace", "")] = [{"ns": 17000.0}]
        return found

    def test_bench_rows(self):
        behind = [{"free_us": 2.0 + i / 10, "alloc_us": 1.0} for i in range(12)]
        rows = checks_pool.backing_rows("c", "vmm", self.bench_answers(200.0), behind,
                                        [{"free_us": 101000.0}])
        self.assertEqual([r["verdict"] for r in rows], ["ok"] * 7, rows)
        self.assertIn("4 KiB: 0.3333", rows[0]["shim"])
        self.assertIn("1/300", rows[3]["shim"])
        self.assertIn("5.00 × the throughput", rows[4]["shim"])
        self.assertEqual((rows[5]["native"], rows[6]["native"]), ("17000 ns", "101000 µs"))
        behind = [{"free_us": 100000.0, "alloc_us": 1.0}] * 12
        rows = checks_pool.backing_rows("c", "vmm", self.bench_answers(700.0), behind, [])
        self.assertEqual([r["verdict"] for r in rows],
                         ["FAIL"] * 4 + ["ok"] + ["FAIL"] * 2)

    def test_every_command_of_the_bench_is_known_to_it(self):
        """The client's own table of commands, in its source."""
        source = client_source(os.path.join("cuda", "pool_bench_gpu.cu"))
        names = source.split("*const names[] = {")[1].split("}")[0]
        keys = [key for key, _, _ in checks_pool.plan(checks_pool.BACKINGS)]
        self.assertEqual(len(keys), len(set(keys)))
        ways = source.split("*const ways[] = {")[1].split("}")[0]
        for _, _, text in checks_pool.plan(checks_pool.BACKINGS) + checks_streams.pair_plan(("vmm",)):
            self.assertIn(f'"{text.split()[0]}"', names)
            if text.startswith("pair"):
                self.assertIn(f'"{text.split()[1]}"', ways)

    def test_sanitizer(self):
        sound = "x\n========= ERROR SUMMARY: 0 errors\n"
        faulty = ("x\n========= Invalid __global__ write of size 4 bytes\n"
                  "========= ERROR SUMMARY: 1 error\n")
        judge = checks_processes.sanitizer_problems

        def pair(native, shim, report=None, err=""):
            return a_result(native), a_result(shim, err, report=report or a_report())

        self.assertEqual(judge(*pair(sound, sound), False)[0], [])
        self.assertEqual(judge(*pair(faulty, faulty, err="vramshim: the pool is off\n"), True)[0], [])
        for name, arguments in (
                ("the fault is hidden", (*pair(faulty, sound), True)),
                ("the fault is not planted", (*pair(sound, sound), True)),
                ("the pool is on", (*pair(sound, sound, a_pool_report()), False)),
                ("noise", (*pair(sound, sound, err="vramshim: oh\n"), False)),
                ("other output", (*pair(sound, "y" + sound), False))):
            self.assertTrue(judge(*arguments)[0], name)


class Training(unittest.TestCase):
    def test_random_plan_alternates(self):
        self.assertEqual(checks_train.random_plan({"vmm": 2, "native": 1}),
                         ["cache 0", "vmm 0", "native 0", "vmm 1", "cache 1"])

    def test_random_row(self):
        row = checks_train.random_row("c", "w", [5.0, 5.1, 5.2], [4.5, 4.6, 4.68], 0.97, "")
        self.assertEqual(row["verdict"], "ok")
        row = checks_train.random_row("c", "w", [5.0, 5.1, 5.2], [5.5, 5.6, 5.7], 0.97, "")
        self.assertEqual(row["verdict"], "FAIL")
        self.assertEqual(checks_train.random_row("c", "w", [5.0], [4.0], 0.97, "")["verdict"], "info")

    def test_reserved_row(self):
        def verdict(*loaded):
            return checks_train.reserved_row("c", "w", loaded, 1.07)["verdict"]

        self.assertEqual(verdict((a_pool_report(), None)), "ok")
        self.assertEqual(verdict((a_pool_report(), None), (a_pool_report(reserved=540), None)), "FAIL")
        self.assertEqual(verdict((None, "no report was written")), "FAIL")
        self.assertEqual(verdict((a_report(), None)), "FAIL")

    def test_cap(self):
        said = json.dumps({"losses": ["1.5", "1.25"], "seconds": [1.0]})
        other = json.dumps({"losses": ["1.5", "1.26"], "seconds": [1.0]})

        def problems(cached=said, capped=said, code=0, limit=600, ooms=(), **changes):
            report = a_pool_report(**{"failed_count": 0, **changes})
            report["devices"][0]["limit_bytes"] = 600
            report["ooms"] = list(ooms)
            return checks_train.cap_problems(a_result(cached), a_result(capped, code=code, report=report),
                                             limit)

        self.assertEqual(problems(), [])
        for name, bad in (("losses", problems(capped=other)), ("no answer", problems(capped="x")),
                          ("an end", problems(code=1)), ("a failed call", problems(failed_count=1)),
                          ("out of memory", problems(ooms=[{}])), ("another limit", problems(limit=601)),
                          ("over the limit", problems(reserved=601))):
            self.assertTrue(bad, name)


class Streams(unittest.TestCase):
    def answers(self, shim, kernel=2000.0):
        """Answers in rounds: the driver's pair takes 600 ns, the pool's shim, beside what the kernel does."""
        found = {}
        for key, _, text in checks_streams.pair_plan(("vmm",)):
            alone = 0.0 if " none " in text else kernel
            ns = {"alone": 0.0, checks_pool.DRIVER: 600.0, "vmm": shim}[key[0]] + alone
            found[key] = [{"ns": ns + i} for i in range(16)]
        return found

    def test_pair_rows(self):
        rows = checks_streams.pair_rows("c", "vmm", self.answers(200.0))
        self.assertEqual([r["verdict"] for r in rows], ["ok"] * 5)
        self.assertIn("64 MiB: 0.3", rows[2]["shim"])
        rows = checks_streams.pair_rows("c", "vmm", self.answers(500.0))
        self.assertEqual([r["verdict"] for r in rows], ["FAIL", "ok", "FAIL", "ok", "FAIL"])
        rows = checks_streams.pair_rows("c", "vmm", self.answers(700.0))
        self.assertEqual([r["verdict"] for r in rows], ["FAIL"] * 5)

    def test_what_is_added_is_never_nothing(self):
        found = self.answers(-50.0)
        self.assertEqual(set(checks_streams.added(found, "vmm", "around", "4 KiB")), {1.0})

    def test_reserved_bound(self):
        bound = checks_streams.reserved_bound
        self.assertAlmostEqual(bound(100, {"torch_reserved_peak": 200}), 1.9)
        self.assertAlmostEqual(bound(100, {"torch_reserved_peak": 105}), 1.04)
        self.assertAlmostEqual(bound(0, {}), 1.04)

    def test_served_row(self):
        row = checks_streams.served_row
        self.assertEqual(row("c", "vmm", a_pool_report(), None)["verdict"], "ok")
        self.assertEqual(row("c", "vmm", with_async(a_pool_report()), None)["verdict"], "FAIL")
        self.assertEqual(row("c", "vmm", None, "no report was written")["verdict"], "FAIL")

    def test_figures(self):
        def points(used, name="a"):
            return {"points": [{"point": name, "used": used}]}

        problems = checks_streams.figure_problems
        near = 100 << 20
        self.assertEqual(problems(points(near), points(near + (8 << 20)), ("used",)), [])
        self.assertEqual(problems(points(0), points(1 << 20), ("used",)), [])
        self.assertTrue(problems(points(near), points(2 * near), ("used",)))
        self.assertTrue(problems(points(2 * near), points(near), ("used",)))
        self.assertTrue(problems(points(near), points(near, "b"), ("used",)))
        self.assertTrue(problems(points(near), None, ("used",)))

    def test_loop_rows(self):
        """Clients that need neither a GPU nor the shim: what is said of times and sums."""
        code = ("import json, sys\nprint(json.dumps({'ready': True}), flush=True)\n"
                "for n, line in enumerate(sys.stdin):\n"
                "    if line.startswith('quit'): break\n"
                "    facts = line.startswith('facts')\n"
                "    print(json.dumps({'torch_reserved_peak': 9} if facts else\n"
                "                     {'ms': MS + n / 1000, 'sum': SUM}), flush=True)\n")

        def rows(ms, total, **more):
            def argv(own_ms, own_sum):
                return [sys.executable, "-c", code.replace("MS", str(own_ms)).replace("SUM", str(own_sum))]

            with tempfile.TemporaryDirectory() as folder:
                context = core.Context("/nowhere", "/nowhere/build", folder)
                return checks_train.loop_rows(context, "c", "w", (argv(5.0, 1.5), None),
                                              (argv(ms, total), None), {"": ("block 1", 1.0)}, **more)

        found = [r for r in rows(4.0, 1.5) if "time against" in r["what"]]
        self.assertEqual([r["verdict"] for r in found], ["ok"] * len(checks_pool.BACKINGS))
        found = rows(6.0, 1.25, driver=True, reserved=checks_streams.reserved_bound)
        times = [r["what"] for r in found if "time against" in r["what"] and r["verdict"] == "FAIL"]
        self.assertEqual(sum("the driver's own pool" in what for what in times), 0)
        self.assertEqual(sum("its own cache" in what for what in times), 4)  # the time, and other sums
        self.assertTrue(any("reserved" in r["what"] and r["verdict"] == "FAIL" for r in found))

    def test_clients_know_what_they_are_asked(self):
        work = client_source("torch_shapes.py").split("WORK = {")[1].split("}")[0]
        for name in checks_streams.SHAPES:
            self.assertIn(f'"{name}":', work)

    def test_clients_compile(self):
        """Few machines have what they import."""
        folder = os.path.join(ROOT, "tests", "clients")
        names = [name for name in os.listdir(folder) if name.endswith(".py")]
        self.assertGreater(len(names), 15)
        for name in names:
            compile(client_source(name), name, "exec")

    def test_workers_answer_everything(self):
        sys.path.insert(0, os.path.join(ROOT, "tests", "clients"))
        try:
            import worker
        finally:
            sys.path.pop(0)
        commands = {"block": lambda n: {"ms": int(n)}}
        self.assertEqual(worker.answer("block 3\n", commands), {"ms": 3})
        for line in ("blok 3\n", "block\n", "block x\n", "block 1 2\n"):
            self.assertEqual(list(worker.answer(line, commands)), ["error"], line)


class Statistics(unittest.TestCase):
    def test_median_interval_holds_the_truth(self):
        source, hits, tries = random.Random(9), 0, 2000
        for _ in range(tries):
            _, low, high = stats.median_interval([source.expovariate(1) for _ in range(12)])
            hits += low <= 0.6931 <= high
        self.assertTrue(0.95 < hits / tries < 0.99, hits / tries)
        self.assertRaises(ValueError, stats.median_interval, [1, 2, 3, 4, 5])

    def test_known_interval(self):
        mean, low, high = stats.mean_interval([1, 2, 3, 4, 5])
        self.assertAlmostEqual(mean, 3)
        self.assertAlmostEqual(high - mean, 2.776 * 1.5811388 / 5 ** 0.5, places=4)
        self.assertAlmostEqual(mean - low, high - mean)

    def test_the_interval_holds_the_truth_19_times_in_20(self):
        source, hits, tries = random.Random(7), 0, 2000
        for _ in range(tries):
            native = [source.gauss(60, 1) for _ in range(20)]
            shim = [x * 1.005 * source.gauss(1, 0.004) for x in native]
            _, low, high = stats.paired_ratio(native, shim)
            hits += low <= 1.005 <= high
        self.assertTrue(0.93 < hits / tries < 0.97, hits / tries)

    def test_robust_interval_holds_with_two_modes(self):
        source, tries, hits, widths = random.Random(8), 200, 0, []
        for _ in range(tries):
            both = [[60 * source.gauss(1, 0.004) * source.choice((1, 1, 1.08)) for _ in range(40)]
                    for _ in range(2)]
            _, low, high = stats.robust_ratio(both[0], [x * 1.005 for x in both[1]])
            hits += low <= 1.005 <= high
            widths.append(high - low)
        self.assertTrue(0.90 < hits / tries < 0.985, hits / tries)
        self.assertLess(statistics.median(widths), 0.04)

    def test_pairing_removes_drift(self):
        native = [60 + 2 * i for i in range(20)]
        ratio, low, high = stats.paired_ratio(native, [x * 1.02 for x in native])
        self.assertAlmostEqual(ratio, 1.02)
        self.assertLess(high - low, 1e-6)

    def test_verdicts(self):
        self.assertEqual(stats.within(0.99, 1.005, 1.01), "ok")
        self.assertEqual(stats.within(1.00, 1.02, 1.01), "unclear")
        self.assertEqual(stats.within(1.02, 1.03, 1.01), "FAIL")
        self.assertRaises(ValueError, stats.paired_ratio, [1, 2], [1])
        self.assertRaises(ValueError, stats.mean_interval, [])

    def test_turns_alternate(self):
        asked = []
        found = checks_time.turns({"native": "n", "shim": "s", "control": "c"}, 2,
                                  lambda p: asked.append(p) or 2.0)
        self.assertEqual("".join(asked), "nsccsn")
        self.assertEqual(found["shim"], [2.0, 2.0])

    def test_step_rows(self):
        found = {"native": [60.0, 60.1, 60.2] * 5, "control": [60.0, 60.1, 60.2] * 5}
        for factor, verdict in ((1.0, "ok"), (1.05, "FAIL")):
            found["shim"] = [x * factor for x in found["native"]]
            self.assertEqual(checks_time.step_rows("c", found)[0]["verdict"], verdict)


class Merging(unittest.TestCase):
    order = ["a", "b"]

    def setUp(self):
        self.results = results.empty()
        self.run = results.add_run(self.results, {"gpu": "G"}, "c0ffee")

    def put(self, check, *verdicts):
        rows = [results.row(check, f"{check}{i}", verdict=v) for i, v in enumerate(verdicts)]
        results.put(self.results, check, rows, self.run, self.order)

    def seen(self):
        return [(r["what"], r["verdict"], r["run"]) for r in self.results["rows"]]

    def test_later_replaces_earlier_and_order_holds(self):
        self.put("b", "ok")
        self.put("a", "FAIL", "ok")
        self.run = results.add_run(self.results, {"gpu": "G"}, "beef")
        self.put("a", "ok")
        self.assertEqual(self.seen(), [("a0", "ok", 1), ("b0", "ok", 0)])

    def test_not_run_never_replaces_a_result(self):
        self.put("a", "ok")
        self.put("a", "not run")
        self.assertEqual(self.seen(), [("a0", "ok", 0)])
        self.put("b", "not run")
        self.put("b", "FAIL")
        self.assertEqual(self.seen()[-1], ("b0", "FAIL", 0))

    def test_save_load_merge_prune(self):
        self.put("a", "ok")
        other = copy.deepcopy(self.results)
        other["rows"][0]["verdict"] = "FAIL"
        with tempfile.TemporaryDirectory() as folder:
            results.save(self.results, folder)
            loaded = results.load(folder)
            self.assertEqual(loaded, self.results)
            results.merge(loaded, other, self.order)
            results.prune(loaded)
            self.assertEqual([(r["verdict"], r["run"]) for r in loaded["rows"]], [("FAIL", 0)])
            self.assertEqual(len(loaded["runs"]), 1)
            self.assertEqual(len(results.failed(loaded)), 1)
            self.assertEqual(results.load(os.path.join(folder, "nothing-here")), results.empty())

    def test_table_and_markdown_hold_everything(self):
        rows = [results.row("a", "what | it is " * 8, "x" * 90, "same", "FAIL", "the diff")]
        results.put(self.results, "a", rows, self.run, self.order)
        table, text = results.table(self.results), results.markdown(self.results)
        self.assertEqual(table.count("x"), 90)
        self.assertTrue(all(len(line) <= 44 + 30 + 48 + 8 + 9 for line in table.splitlines()))
        self.assertIn("1 FAIL", table)
        self.assertIn("the diff", results.details(self.results))
        self.assertIn("c0ffee", text)
        self.assertIn("what \\| it is", text)
        self.assertRaises(ValueError, results.row, "a", "b", verdict="fine")


class Running(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = core.Context("/nowhere", "/nowhere/build", self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def python(self, code, **more):
        return self.context.run([sys.executable, "-c", code], **more)

    def test_output_code_and_absence(self):
        result = self.python("import sys; print(1); print(2, file=sys.stderr); sys.exit(3)")
        self.assertEqual((result.out, result.err, result.code), ("1\n", "2\n", 3))
        self.assertEqual(self.context.run(["/no/such/program"]).code, 127)
        self.assertIn("-11", self.python("import os; os.kill(os.getpid(), 11)").failure())

    def test_a_hang_is_ended_with_its_children(self):
        pid_file = os.path.join(self.folder.name, "pid")
        start = time.monotonic()
        result = self.python("import subprocess, time\n"
                             f"p = subprocess.Popen(['sleep', '100'])\n"
                             f"open({pid_file!r}, 'w').write(str(p.pid))\ntime.sleep(100)", timeout=1.5)
        self.assertTrue(result.timed_out)
        self.assertLess(time.monotonic() - start, 10)
        with open(pid_file, encoding="utf-8") as file:
            pid = int(file.read())
        for _ in range(100):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        break
            except FileNotFoundError:
                break
            time.sleep(0.05)
        else:
            self.fail("the grandchild lives on")

    def test_a_grandchild_that_keeps_stdout_does_not_hold_us_up(self):
        start = time.monotonic()
        self.assertEqual(self.python("import subprocess; subprocess.Popen(['sleep', '50'])").code, 0)
        self.assertLess(time.monotonic() - start, 10)

    def test_environment(self):
        shim = "/nowhere/build/shim/libvramshim.so"
        for first, bare, preloaded in (("", None, shim), ("/a/lib.so", "/a/lib.so", "/a/lib.so:" + shim)):
            set_to = {"VRAMSHIM_LIMIT": "nonsense", "VS_TEST_PRELOAD_FIRST": first}
            with unittest.mock.patch.dict(os.environ, set_to):
                plain, shimmed = self.context.environment(), self.context.environment(shim=True)
            self.assertFalse([k for k in plain if k.startswith("VRAMSHIM")])
            self.assertEqual(plain.get("LD_PRELOAD"), bare)
            self.assertEqual(shimmed["LD_PRELOAD"], preloaded)
            self.assertNotIn("VRAMSHIM_LIMIT", shimmed)

    def test_stop_ends_what_runs_and_starts_no_more(self):
        timer = threading.Timer(0.5, self.context.stop)
        timer.start()
        result = self.python("import time; time.sleep(60)")
        timer.join()
        self.assertEqual(result.code, -signal.SIGKILL)
        self.assertEqual(self.python("print(1)").code, 125)

    def test_partner(self):
        context = core.Context("/nowhere", "/nowhere/build", self.folder.name)
        code = ("import json, sys\nprint(json.dumps({'ready': 1}), flush=True)\n"
                "for line in sys.stdin:\n"
                "    if line.startswith('quit'): break\n"
                "    if line.startswith('die'): sys.exit('gone')\n"
                "    print(json.dumps({'ms': [1, 2]}), flush=True)\n")
        partner = checks_time.Partner(context, [sys.executable, "-c", code], False)
        self.assertEqual(partner.answer(20), {"ready": 1})
        self.assertEqual(partner.ask("block", 20), {"ms": [1, 2]})
        with self.assertRaisesRegex(RuntimeError, "gone"):
            partner.ask("die", 20)
        partner.close()

    def test_company_goes_on_without_who_fails(self):
        context = core.Context("/nowhere", "/nowhere/build", self.folder.name)
        code = ("import json, os, sys\nprint(json.dumps({'ready': 1}), flush=True)\n"
                "n = 0\nfor line in sys.stdin:\n"
                "    if line.startswith('quit'): sys.exit(int(os.environ.get('CODE', 0)))\n"
                "    n += 1\n"
                "    bad = n == int(os.environ.get('BAD', 0))\n"
                "    print(json.dumps({'error': 'oh'} if bad else {'n': n}), flush=True)\n")
        argv = [sys.executable, "-c", code]
        company = turns.Company(context, {
            "good": (argv, False, None, None), "bad": (argv, False, None, {"BAD": "2"}),
            "late": (argv, False, None, {"CODE": "3"}), "none": (["/no/such/program"], False, None, None),
            "mute": ([sys.executable, "-c", "raise SystemExit('gone')"], False, None, None)}, 20)
        self.assertEqual(set(company.failed), {"none", "mute"})
        self.assertIn("gone", company.failed["mute"])
        found = company.rounds([(n, n, "x") for n in ("good", "bad", "late", "none")], 3)
        company.close()
        self.assertEqual([len(found[n]) for n in ("good", "bad", "late", "none")], [3, 1, 3, 0])
        self.assertIn("oh", company.failed["bad"])
        self.assertEqual(set(company.ended), {"late"})

    def test_expectation_of_a_client(self):
        self.assertEqual(core.expectation('x\nexpect: {"a": null}\n'), {"a": None})
        self.assertIsNone(core.expectation("x\n"))
        self.assertIsNone(core.expectation("expect: {\n"))

    def test_scrub(self):
        self.assertEqual(self.context.scrub("/nowhere/tests/x and " + self.folder.name),
                         "tests/x and WORK")


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    print(f"{result.testsRun - len(result.failures) - len(result.errors)} passed, "
          f"{len(result.failures) + len(result.errors)} failed")
    return 0 if result.wasSuccessful() else 1
