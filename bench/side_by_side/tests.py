"""Tests of what needs no broker: `python3 -m unittest side_by_side.tests` in bench/."""

import tempfile
import types
import unittest
import unittest.mock
import xml.dom.minidom
from pathlib import Path

from . import flame, machine, measure, plan, plots, ratios, report
from .load import consumer_figures, producer_figures, sample_of
from .state import State

PRODUCER = """1000 records sent, 200.0 records/sec (0.19 MB/sec), 1.0 ms avg latency, 9.0 ms max latency.
50000 records sent, 25000.0 records/sec (23.84 MB/sec), 4.10 ms avg latency, 250.00 ms max latency, 2 ms 50th, 15 ms 95th, 20 ms 99th, 31 ms 99.9th.
"""
CONSUMER = "2026-01-01 00:00:00:000, 2026-01-01 00:00:01:000, 47.6837, 47.6837, 50000, 50000.0, 500, 500, 95.3674, 100000.0\n"
STRACE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.00    0.100000          10      1000           fdatasync
 10.00    0.010000          10        20         1 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    0.110000                  1020           total
"""


def rounds(figure, *values):
    return [{figure: value} for value in values]


def bulk(kafka, thalweg, inline, ring):
    samples = {"kafka": kafka, "thalweg": thalweg, "floor-inline": inline, "floor-ring": ring}
    return {"bulk-produce": {"samples": {name: rounds("produce.mb_s", *values) for name, values in samples.items()}}}


def durable(syncs):
    checked = {"kafka": {"syncs": 900, "acknowledged": 5000}, "thalweg": {"syncs": syncs, "acknowledged": 50_000}}
    samples = {"kafka": rounds("produce.requests_s", 500, 500), "thalweg": rounds("produce.requests_s", 2000, 1500)}
    return {"durable-acks": {"samples": samples, "checked": checked}}


class Reading(unittest.TestCase):
    def test_kafkas_tools(self):
        produced = producer_figures(PRODUCER)
        self.assertAlmostEqual(produced["producer_tool.mb_s"], 25.0, 2)
        self.assertEqual((produced["producer_tool.p50_us"], produced["producer_tool.p999_us"]), (2000, 31000))
        self.assertAlmostEqual(consumer_figures(CONSUMER)["consumer_tool.mb_s"], 100.0, 2)

    def test_strace(self):
        self.assertEqual(machine.calls_in(STRACE), 1020)

    def test_rounds_of_the_generator(self):
        latency = {"p50": 1, "p90": 2, "p99": 3, "p999": None, "max": 4}
        part = {"name": "produce", "mb_per_second": 5.0, "requests_per_second": 6.0, "latency_us": latency}
        sample = sample_of({"broker_cpu_s_per_gb": 1.0, "broker_cpu_us_per_request": 2.0, "broker_cpus": 0.5,
                            "machine_cpus": 1.5, "seconds": 8.0, "parts": [part]})
        self.assertEqual((sample["produce.mb_s"], sample["produce.p999_us"], sample["cpu_s_per_gb"]), (5.0, None, 1.0))


class Ratios(unittest.TestCase):
    def test_pairs_medians_and_spread(self):
        found, absent = ratios.of(bulk([100, 200, 100], [400, 400, 300], [100, 100, 100], [500, 500, 500]))
        self.assertEqual(found["produce_mb_s_vs_kafka"], 3)
        self.assertEqual(found["produce_mb_s_vs_kafka_spread"], [2, 4])
        # The faster engine is the floor.
        self.assertEqual(found["produce_vs_floor_rounds"], [0.8, 0.8, 0.6])
        self.assertEqual(ratios.verdict("produce_vs_floor", found["produce_vs_floor"]), "missed")
        self.assertIn("not run", absent["one_record_req_s_vs_kafka"])
        self.assertEqual(set(ratios.FORMULAS), set(ratios.TARGETS))

    def test_unequal_promises_are_not_compared(self):
        found, _ = ratios.of(durable(syncs=5000))
        self.assertEqual(found["durable_acks_vs_kafka"], 3.5)
        found, absent = ratios.of(durable(syncs=3))
        self.assertNotIn("durable_acks_vs_kafka", found)
        self.assertIn("thalweg does not keep the promise", absent["durable_acks_vs_kafka"])

    def test_a_round_without_a_figure_makes_no_ratio(self):
        results = {"half-knee": {"samples": {"kafka": rounds("produce.p999_us", 9), "thalweg": rounds("produce.p999_us", None)}}}
        self.assertIn("10,000 samples", ratios.of(results)[1]["produce_p999_at_half_knee_vs_kafka"])

    def test_the_floor_says_what_the_machine_can_do_at_half_the_knee(self):
        tails = {"thalweg": (10, 12), "kafka": (20, 40), "floor-inline": (30, 30), "floor-ring": (8, 10)}
        samples = {name: rounds("produce.p999_us", *values) for name, values in tails.items()}
        found, _ = ratios.of({"half-knee": {"samples": samples}})
        self.assertEqual(found["floor_p999_at_half_knee_vs_kafka_rounds"], [0.4, 0.25])
        self.assertEqual(found["produce_p999_at_half_knee_vs_floor_rounds"], [1.25, 1.2])

    def test_what_the_generator_can_drive_is_what_it_drove_the_floor_to(self):
        rates = {"thalweg": (50, 40), "kafka": (5, 5), "floor-inline": (100, 60)}
        samples = {name: rounds("produce.requests_s", *values) for name, values in rates.items()}
        found, _ = ratios.of({"one-record": {"samples": samples}})
        self.assertEqual(found["generator_req_s_vs_thalweg_rounds"], [2, 1.5])


class Flames(unittest.TestCase):
    SCRIPT = """shard-0
\t    7f01 thalweg_net::serve::<impl Future for Foo<Bar>>::poll::h0123456789abcdef+0x1f (/x/thalweg)
\t    55aa main+0x3 (/x/thalweg)

shard-0
\tffffffff81 tcp_sendmsg+0x10 ([kernel.kallsyms])
\t    55aa main+0x5 (/x/thalweg)

shard-0
\tffffffff81 tcp_sendmsg+0x20 ([kernel.kallsyms])
\t    55aa main+0x5 (/x/thalweg)
"""

    def test_stacks_are_counted_from_the_outermost_caller(self):
        found = flame.stacks(self.SCRIPT.splitlines())
        self.assertEqual(found, {("shard-0", "main", "thalweg_net::serve::poll"): 1,
                                 ("shard-0", "main", "tcp_sendmsg [k]"): 2})

    def test_the_picture_is_as_wide_as_the_samples(self):
        picture = flame.svg("<title>", flame.stacks(self.SCRIPT.splitlines()))
        xml.dom.minidom.parseString(picture)
        self.assertIn("tcp_sendmsg [k]: 66.7%", picture)
        self.assertIn("3 samples", picture)


class Going(unittest.TestCase):
    def test_state_goes_on_and_refuses_other_settings(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state.json"
            State(file, {"rounds": 3}).keep("one-record", {"samples": {}})
            self.assertTrue(State(file, {"rounds": 3}).has("one-record"))
            with self.assertRaisesRegex(SystemExit, "rounds.*--fresh"):
                State(file, {"rounds": 5})

    def test_nobody_always_comes_after_the_same(self):
        orders = [measure.order(["a", "b", "c", "d"], number) for number in range(4)]
        self.assertEqual(["".join(order) for order in orders], ["abcd", "badc", "cdab", "dcba"])

    def test_steps(self):
        self.assertEqual([step.name for step in plan.chosen(False, ["half-knee"])], ["knee", "half-knee"])
        self.assertLess(len(plan.chosen(True, [])), 10)
        known = {file.stem for file in (Path(__file__).parent.parent / "workloads").glob("*.toml")}
        self.assertEqual({step.workload for step in plan.STEPS} - known, {""})
        with self.assertRaisesRegex(SystemExit, "no workload fast"):
            plan.chosen(True, ["fast"])


class Filling(unittest.TestCase):
    def test_the_page_cache_is_filled_only_where_much_memory_is_free(self):
        memory = {"MemTotal": 8 << 20, "MemFree": 1 << 20}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(machine, "meminfo_kib", memory.get):
            file = Path(folder) / "page-cache"
            cache = machine.PageCache(file)
            self.assertEqual(cache.fill(), 0)
            self.assertFalse(file.exists())
            memory["MemFree"] = 7 << 20
            # Each look finds 256 MiB less, whatever is read and written.
            free = iter(range(7 << 10, 0, -256))
            room = types.SimpleNamespace(free=(machine.DISK_MIB_LEFT + 3) << 20)
            with unittest.mock.patch.object(machine, "free_mib", lambda: next(free)), \
                    unittest.mock.patch.object(machine.shutil, "disk_usage", lambda _: room):
                file.write_bytes(b"written before")
                self.assertGreater(cache.fill(), 0)
            self.assertEqual(file.stat().st_size, len(b"written before") + (3 << 20))
            cache.remove()
            cache.remove()
            self.assertFalse(file.exists())


class Reporting(unittest.TestCase):
    def test_free_pages_are_kept_from_the_host_for_the_time_of_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "page_reporting_order"
            with machine.FreePageReporting(file) as reporting:
                self.assertEqual(reporting.said, "not asked for by the host")
            self.assertFalse(file.exists())
            file.write_text("9\n")
            with machine.FreePageReporting(file) as reporting:
                self.assertEqual(file.read_text(), "11")
                self.assertIn("off for this run", reporting.said)
            self.assertEqual(file.read_text(), "9")
            # Nobody has asked for reports.
            file.write_text("4294967295\n")
            with machine.FreePageReporting(file):
                self.assertEqual(file.read_text(), "4294967295\n")


class Writing(unittest.TestCase):
    def test_report_and_plots(self):
        results = bulk([100, 90], [3000, 400], [1, 2], [500, 500])
        steps = [{"rate": 9, "is_held": True, "mb_s": 5.0, "p50": 100, "p99": 20_000, "p999": None}]
        results["knee"] = {"knees": {"kafka": {"requests_s": 9, "mb_s": 5.0, "is_resolved": True, "steps": steps}}}
        results["one-record"] = {"failed": "the broker ended"}
        found, absent = ratios.of(results)
        whole = {"command": "bench/compare", "machine": {"commit": "c", "kernel": "k", "cpu": "x", "cpus": 2, "memory_mib": 1, "free_page_reporting": "off"},
                 "settings": {"rounds": 2, "seconds": 8.0, "warm_up": 1.0, "broker_cpu": 0, "load_cpu": 1},
                 "brokers": {}, "jvm_choices": {}, "ratios": found, "absent": absent, "left_out": ["noida-db: x"]}
        with tempfile.TemporaryDirectory() as folder:
            report.write(folder, whole, results)
            text = (Path(folder) / "report.md").read_text()
            for expected in ("produce_mb_s_vs_kafka", "absent: ", "Failed: the broker ended", "noida-db: x", "latency.svg"):
                self.assertIn(expected, text)
            for picture in Path(folder).glob("*.svg"):
                xml.dom.minidom.parse(str(picture))

    def test_axes(self):
        self.assertEqual([plots.nice(x) for x in (0.07, 1, 3, 700)], [0.1, 1, 5, 1000])
        self.assertEqual(plots.ticks(1, 100, True), [1.0, 10.0, 100.0])
        self.assertIn("nothing was measured", plots.bars("t", "u", {}))


if __name__ == "__main__":
    unittest.main()
