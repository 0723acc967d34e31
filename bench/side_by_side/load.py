"""Runs `thalweg-bench` and Kafka's own tools against a broker and reads what they measured."""

import json
import re
import subprocess
import tempfile
from pathlib import Path

from . import machine
from .brokers import MemorySampler


class Generator:
    """The load generator: where it is and on which CPU it runs."""

    def __init__(self, binary, cpu, folder, settle):
        self.binary, self.cpu, self.folder, self.settle = str(binary), cpu, Path(folder), settle

    def _call(self, words):
        command = machine.on_cpu(self.cpu, [self.binary, *map(str, words)])
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-800:]}")
        return done.stdout

    def _with_json(self, words):
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            file = Path(folder) / "out.json"
            self._call([*words, "--json", file])
            return json.loads(file.read_text())

    def run(self, workload, broker, seconds, warm_up, extra=()):
        """One round against a broker that runs already."""
        words = ["run", workload, "--against", broker.address, "--broker-pid", broker.pid, "--rounds", 1,
                 "--seconds", seconds, "--warm-up", warm_up, "--settle", self.settle, *extra]
        with MemorySampler(broker.pid) as seen:
            result = self._with_json(words)
        sample = sample_of(result["rounds"][0])
        sample["rss_mib"], sample["anonymous_mib"] = seen.most, seen.most_anonymous
        return sample

    def floor(self, workload, engine, cpu, seconds, warm_up, extra=()):
        """One round against the floor, which is started for it."""
        place = [] if cpu is None else ["--cpu", cpu]
        text = self._call(["floor", "--workload", workload, "--engine", engine, "--dir", self.folder / "floor", *place,
                           "--seconds", seconds, "--warm-up", warm_up, "--json", *extra])
        machine.settle(self.settle)
        return sample_of(json.loads(text))

    def knee(self, workload, broker, minutes, seconds):
        """The search for a broker's knee: the highest rate that it held, and every step."""
        return self._with_json(["knee", workload, "--against", broker.address, "--broker-pid", broker.pid,
                                "--minutes", minutes, "--seconds", seconds, "--warm-up", 0.5])


def sample_of(run):
    """One round of thalweg-bench's JSON as flat numbers: those of each part, and those of the broker."""
    sample = {
        "cpu_s_per_gb": run["broker_cpu_s_per_gb"],
        "cpu_us_per_request": run["broker_cpu_us_per_request"],
        "broker_cpus": run["broker_cpus"],
        "machine_cpus": run["machine_cpus"],
        "other_cpus": run["machine_cpus"] - run["broker_cpus"],
        "seconds": run["seconds"],
    }
    for part in run["parts"]:
        name, latency = part["name"], part["latency_us"]
        sample[f"{name}.mb_s"] = part["mb_per_second"]
        sample[f"{name}.requests_s"] = part["requests_per_second"]
        for percentile in ("p50", "p90", "p99", "p999", "max"):
            sample[f"{name}.{percentile}_us"] = latency[percentile]
        if "open_loop" in part:
            sample[f"{name}.achieved_share"] = part["open_loop"]["achieved_share"]
            sample[f"{name}.send_delay_p99_us"] = part["open_loop"]["send_delay_us"]["p99"]
    end_to_end = run.get("end_to_end_us")
    for percentile in ("p50", "p99") if end_to_end else ():
        sample[f"end_to_end.{percentile}_us"] = end_to_end[percentile]
    return sample


class KafkaTools:
    """Kafka's own ProducerPerformance and ConsumerPerformance, on the CPU of the load."""

    def __init__(self, jars, cpu):
        self.jars, self.cpu = jars, cpu

    def _tool(self, name, *words):
        command = machine.on_cpu(self.cpu, ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp",
                                            f"{self.jars}/*", f"org.apache.kafka.tools.{name}", *map(str, words)])
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{name}: {(done.stderr or done.stdout).strip()[-800:]}")
        return done.stdout

    def round(self, broker, records):
        """Produces and consumes so many records of 1,000 bytes through a new topic of 6 partitions."""
        topic, to = "compare-performance", ("--bootstrap-server", broker.address)
        self._tool("TopicCommand", *to, "--create", "--topic", topic, "--partitions", 6, "--replication-factor", 1)
        try:
            before = machine.cpu_seconds(broker.pid)
            produced = self._tool("ProducerPerformance", *to, "--topic", topic, "--num-records", records, "--record-size",
                                  1000, "--throughput", -1, "--command-property", "acks=1", "batch.size=65536",
                                  "linger.ms=5", "enable.idempotence=false")
            between = machine.cpu_seconds(broker.pid)
            consumed = self._tool("ConsumerPerformance", *to, "--topic", topic, "--num-records", records, "--timeout",
                                  60000, "--hide-header")
            after = machine.cpu_seconds(broker.pid)
        finally:
            self._tool("TopicCommand", *to, "--delete", "--topic", topic)
            machine.settle(15)
        gb = records * 1000 / 1e9
        return {**producer_figures(produced), **consumer_figures(consumed),
                "producer_tool.broker_cpu_s_per_gb": (between - before) / gb,
                "consumer_tool.broker_cpu_s_per_gb": (after - between) / gb}


def producer_figures(text):
    """The last line of ProducerPerformance: records per second, MB (2^20) per second, and percentiles."""
    line = [line for line in text.splitlines() if "99.9th" in line][-1]
    rate = re.search(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)", line)
    figures = {"producer_tool.mb_s": float(rate[2]) * 1.048576, "producer_tool.records_s": float(rate[1])}
    for percentile, name in (("50", "p50"), ("99", "p99"), ("99.9", "p999")):
        found = re.search(rf"(\d+) ms {re.escape(percentile)}th", line)
        figures[f"producer_tool.{name}_us"] = int(found[1]) * 1000
    return figures


def consumer_figures(text):
    """The last line of ConsumerPerformance: MB (2^20) and records, whole and per second of fetching."""
    fields = [line.split(", ") for line in text.splitlines() if line.count(", ") >= 9][-1]
    return {"consumer_tool.mb_s": float(fields[8]) * 1.048576, "consumer_tool.records_s": float(fields[9])}
