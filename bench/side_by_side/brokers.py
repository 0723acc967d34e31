"""Kafka and Thalweg as child processes: fetched or built, started, warmed up, stopped."""

import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

from . import machine

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
SAMPLE_SECONDS = 0.2

# What bin/kafka-server-start.sh and bin/kafka-run-class.sh of a Kafka 4 release give the JVM.
KAFKA_HEAP = ["-Xmx1g", "-Xms1g"]
KAFKA_JVM = ["-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
             "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"]
# For all brokers, so that deleted topics do not fill the disk while a run goes on.
BOTH = {"log.segment.delete.delay.ms": "1000"}
JVM_FLAGS = ("UseSerialGC", "UseG1GC", "ParallelGCThreads", "ConcGCThreads", "CICompilerCount", "MaxHeapSize")


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def kafka_jars(version):
    """The folder with Kafka's jars, fetched by Maven from Maven Central where they are missing."""
    script = """
        set -euo pipefail
        . scripts/lib/say.sh
        . scripts/lib/install.sh
        need_commands java=default-jdk-headless mvn=maven taskset=util-linux strace=strace >&2
        ROOT=$PWD kafka_jars"""
    env_version = ["env", f"KAFKA_VERSION={version}"] if version else []
    done = subprocess.run([*env_version, "bash", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip().splitlines()[-1])


def version_of(jars):
    """Kafka's version, by the name of its jar."""
    return next(jars.glob("kafka-clients-*.jar")).stem.removeprefix("kafka-clients-")


def jvm_choices(cpu):
    """What a JVM chooses on one CPU and on all of them, without flags and with those of Kafka's scripts."""
    def choices(where, flags):
        command = machine.on_cpu(where, ["java", *flags, "-XX:+PrintFlagsFinal", "-version"])
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        words = [line.split() for line in text.splitlines()]
        return {w[1]: w[3] for w in words if len(w) > 3 and w[1] in JVM_FLAGS}
    return {
        "one CPU, no flags": choices(cpu, []),
        "all CPUs, no flags": choices(None, []),
        "one CPU, Kafka's flags": choices(cpu, KAFKA_HEAP + KAFKA_JVM),
        "all CPUs, Kafka's flags": choices(None, KAFKA_HEAP + KAFKA_JVM),
    }


def api_versions(port):
    """The highest version of each API that a broker offers, asked by ApiVersions version 0."""
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.settimeout(5)
        request = struct.pack(">hhih", 18, 0, 1, -1)
        s.sendall(struct.pack(">i", len(request)) + request)
        stream = s.makefile("rb")
        size = struct.unpack(">i", stream.read(4))[0]
        answer = stream.read(size)
    error, count = struct.unpack_from(">hi", answer, 4)
    if error:
        raise RuntimeError(f"ApiVersions: error {error}")
    rows = struct.iter_unpack(">hhh", answer[10:10 + 6 * count])
    return {key: highest for key, _, highest in rows}


class Broker:
    """A broker that runs until stop(). `name` is how reports call it."""

    name = "broker"

    def __init__(self, folder, cpu):
        self.folder, self.cpu = Path(folder), cpu
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.log = self.folder / "broker.log"
        self.process = None
        self.command_line = machine.on_cpu(cpu, self.command())
        self.group = machine.MemoryGroup(f"thalweg-compare-{self.name}")

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self.process.pid

    @property
    def data(self):
        """Where its topics' folders are."""
        return self.folder / "data"

    def command(self):
        raise NotImplementedError

    def start(self):
        """Starts it and waits until it answers."""
        with self.log.open("w") as log:
            self.process = subprocess.Popen(self.command_line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.group.add(self.pid)
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                api_versions(self.port)
                return self
            except (OSError, struct.error):
                time.sleep(0.05)
        tail = self.log.read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"{self.name} does not answer; the end of its log:\n{tail}")

    def stop(self):
        """Ends it and removes its data."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.group.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def idle_cpu_share(self, seconds=3):
        """CPU that it takes while nobody asks for anything, as a share of one CPU."""
        before = machine.cpu_seconds(self.pid)
        time.sleep(seconds)
        return (machine.cpu_seconds(self.pid) - before) / seconds


class Thalweg(Broker):
    name = "thalweg"

    def __init__(self, folder, cpu, binary):
        self.binary = binary
        super().__init__(folder, cpu)

    def command(self):
        # Unconfined it may use all CPUs, by as many shards as it chooses.
        shards = [] if self.cpu is None else ["--shards", "1"]
        settings = [word for key, value in BOTH.items() for word in ("--set", f"{key}={value}")]
        return [str(self.binary), "serve", "--data-dir", str(self.data), "--listen", self.address, *shards,
                "--metrics-listen", "none", "--log-level", "warn", *settings]


class Kafka(Broker):
    name = "kafka"

    def __init__(self, folder, cpu, jars):
        self.jars = jars
        super().__init__(folder, cpu)

    def command(self):
        return ["java", *KAFKA_HEAP, *KAFKA_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp",
                f"{self.jars}/*", "kafka.Kafka", str(self.folder / "server.properties")]

    def start(self):
        controller = free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "auto.create.topics.enable": "false",
            **BOTH,
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        subprocess.run(["java", "-cp", f"{self.jars}/*", "kafka.tools.StorageTool", "format", "--cluster-id",
                        "AAAAAAAAQACAAAAAAAAAAA", "--config", str(file)], check=True, capture_output=True)
        return super().start()


class MemorySampler:
    """Looks at a process's memory while a run goes on; `with MemorySampler(pid) as seen: ...; seen.most`."""

    def __init__(self, pid):
        self.pid, self.most, self.most_anonymous = pid, 0.0, 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _look(self):
        self.most = max(self.most, machine.status_mib(self.pid, "VmRSS"))
        self.most_anonymous = max(self.most_anonymous, machine.status_mib(self.pid, "RssAnon"))

    def _run(self):
        try:
            while not self._end.wait(SAMPLE_SECONDS):
                self._look()
        except (OSError, RuntimeError):
            pass  # it ended; whoever loads it says so

    def __enter__(self):
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
