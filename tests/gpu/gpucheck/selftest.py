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

from . import (checks_conformance, checks_frameworks, checks_native, checks_processes, checks_time,
               core, reports, results, stats)


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
            names = ("gpu native", "gpu shim", "sim native", "sim shim")
            if lookup != "dlsym":
                names = names[:2]
            return {name: a_result(texts.get(name.replace(" ", "_"), "a\n2 facts\n"),
                                   report=a_report() if name == "gpu shim" else None)
                    for name in names}

        def kinds(found_ways):
            return [bool(texts) for texts in checks_conformance.problems(found_ways)]

        fine, program, shim, sim = ([False] * 3, [True, False, False], [False, True, False],
                                    [False, False, True])
        self.assertEqual(kinds(ways()), fine)
        self.assertEqual(kinds(ways("direct")), fine)
        for name, expected in (("gpu_shim", shim), ("sim_native", sim), ("sim_shim", sim)):
            self.assertEqual(kinds(ways(**{name: "b\n2 facts\n"})), expected, name)
        absent, cut = "not here: no such call\n", "a\n"
        everywhere = ("gpu_native", "gpu_shim", "sim_native", "sim_shim")
        self.assertEqual(kinds(ways(**dict.fromkeys(everywhere, absent))), fine)
        self.assertEqual(kinds(ways(gpu_shim=absent)), shim)
        self.assertEqual(kinds(ways(**dict.fromkeys(everywhere, cut))), program)
        self.assertEqual(kinds(ways(gpu_shim=cut)), shim)
        noisy = ways()
        noisy["gpu shim"].err = "vramshim: oh\n"
        self.assertEqual(kinds(noisy), shim)

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


class Statistics(unittest.TestCase):
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
