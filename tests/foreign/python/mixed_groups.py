"""Members of many clients share groups; they join, leave, are killed and stand still, and so does the broker.

Usage: mixed_groups.py HOST:PORT SECONDS SEED, with BINARY, PYTHON, GO_CLIENTS, NODE_CLIENTS, JARS and
MEMBER_CLASSES in the environment, in the case's folder. The file `kill-the-broker` asks the case for that.

Each member prints the partition and offset of a record before it commits it. At the end every record has been
seen in every group, and positions, which are watched from outside, have reached the end and never moved back.
"""

import functools
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP, SECONDS, SEED = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
TOPIC = "mixed-groups"
PARTITIONS = 8
RECORDS_PER_SECOND = 100
MEMBERS_MAX = 5
SESSION_SECONDS = 6
PATIENCE = 150
# What a member ends with whose library gives up on a broker that is away, as KafkaJS does. Other libraries go on.
GAVE_UP = 75

HERE = pathlib.Path(__file__).parent
LOGS = pathlib.Path("members")
KILL = pathlib.Path("kill-the-broker")


def java(group, protocol):
    flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    path = f"{os.environ['MEMBER_CLASSES']}:{os.environ['JARS']}/*"
    return ["java", *flags, "-cp", path, "Member", BOOTSTRAP, group, TOPIC, protocol]


def python(library):
    program = [os.environ["PYTHON"], str(HERE / "member.py"), library, BOOTSTRAP]
    return lambda group, protocol: [*program, group, TOPIC, protocol]


def go(library):
    program = [f"{os.environ['GO_CLIENTS']}/member", library, BOOTSTRAP]
    return lambda group, protocol: [*program, group, TOPIC, protocol]


@functools.cache
def node():
    """Node's own program: what its package installs only starts that, and would be killed in its place."""
    installed = f"{os.environ['NODE_CLIENTS']}/node"
    return subprocess.check_output([installed, "-p", "process.execPath"], text=True).strip()


def kafkajs(group, _):
    return [node(), "member.js", BOOTSTRAP, group, TOPIC]


def thalweg(group, protocol):
    classic = ["--assignor", protocol, "--session-timeout", "6000"]
    how = ["--group-protocol", "consumer"] if protocol == "consumer" else classic
    command = [os.environ["BINARY"], "consume", TOPIC, "--group", group, "--bootstrap-server", BOOTSTRAP]
    return [*command, "--format", "%p %o\\n", *how]


CLIENTS = {
    "thalweg": thalweg,
    "java": java,
    "confluent": python("confluent"),
    "kafka-python": python("kafka-python"),
    "aiokafka": python("aiokafka"),
    "franz": go("franz"),
    "sarama": go("sarama"),
    "kafkajs": kafkajs,
}
# What each group's members have in common; in the newer groups classic ones take part, too. kcat is not
# among them: it commits what it has fetched and does not print when it is asked to end.
GROUPS = {
    "mixed-range": [(client, "range") for client in CLIENTS if client != "kafkajs"],
    "mixed-cooperative": [
        (client, "cooperative-sticky") for client in ("thalweg", "java", "confluent", "kafka-python", "franz")
    ],
    "mixed-newer": [
        ("thalweg", "consumer"),
        ("java", "consumer"),
        ("confluent", "consumer"),
        ("franz", "consumer"),
        ("java", "cooperative-sticky"),
        ("confluent", "cooperative-sticky"),
        ("franz", "cooperative-sticky"),
        ("thalweg", "cooperative-sticky"),
    ],
    "mixed-kafkajs": [("kafkajs", "")],
}

dice = random.Random(SEED)
failures = []
kills = 0
began = time.monotonic()


def say(text):
    print(f"{time.monotonic() - began:7.1f} {text}", flush=True)


class Member:
    numbers = 0

    def __init__(self, group, kind, protocol):
        Member.numbers += 1
        self.name = f"{group}.{Member.numbers}.{kind}.{protocol or 'own'}"
        self.path = LOGS / f"{self.name}.seen"
        self.errors = LOGS / f"{self.name}.errors"
        self.kind, self.protocol = kind, protocol
        self.paused_until = None
        self.kills_before = kills
        # Nobody outlives the driver, however that ends.
        command = ["setpriv", "--pdeathsig", "KILL", *CLIENTS[kind](group, protocol)]
        with self.path.open("wb") as out, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        say(f"{self.name} joins")

    def leave(self):
        say(f"{self.name} leaves")
        self.process.terminate()

    def kill(self):
        say(f"{self.name} is killed")
        self.process.kill()

    def pause(self, seconds):
        say(f"{self.name} stands still for {seconds:.0f} s")
        self.process.send_signal(signal.SIGSTOP)
        self.paused_until = time.monotonic() + seconds

    def resume(self):
        self.paused_until = None
        self.process.send_signal(signal.SIGCONT)

    def gave_up(self):
        """Whether it has ended as its library does when the broker is killed."""
        return self.process.returncode == GAVE_UP and kills > self.kills_before

    def tail(self):
        return self.errors.read_bytes()[-600:].decode(errors="replace")


class Group:
    def __init__(self, name):
        self.name = name
        self.members = []
        self.gone = []
        self.highest = {}
        self.watcher = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": name, "log_level": 0})
        self.resting = None

    def join(self, kind=None):
        self.members.append(Member(self.name, *(kind or dice.choice(GROUPS[self.name]))))

    def step(self):
        """One thing happens to it."""
        awake = [member for member in self.members if member.paused_until is None]
        what = dice.choices(["join", "leave", "kill", "pause"], [4, 2, 2, 2])[0]
        if len(awake) < 2 or what == "join":
            if len(self.members) < MEMBERS_MAX:
                self.join()
            return
        member = dice.choice(awake)
        if what == "pause":
            member.pause(dice.uniform(1, 2.5 * SESSION_SECONDS))
            return
        if what == "kill":
            member.kill()
        else:
            member.leave()
        self.members.remove(member)
        self.gone.append(member)

    def look(self):
        """Who is to go on, and who has ended by itself."""
        now = time.monotonic()
        for member in list(self.members):
            if member.paused_until is not None and now >= member.paused_until:
                member.resume()
            if member.process.poll() is not None:
                self.members.remove(member)
                if member.gave_up():
                    say(f"{member.name} gave up while the broker was away")
                    self.gone.append(member)
                    self.join((member.kind, member.protocol))
                    continue
                failures.append(f"{member.name} ended with {member.process.returncode}: {member.tail()}")

    def committed(self):
        asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        try:
            answer = self.watcher.committed(asked, timeout=5)
        except Exception:
            return None  # the broker is away
        if any(row.error for row in answer):
            return None
        return {row.partition: max(row.offset, 0) for row in answer}

    def watch(self):
        found = self.committed()
        for partition, offset in (found or {}).items():
            before = self.highest.get(partition, 0)
            if offset < before:
                failures.append(f"{self.name}-{partition} moved back from {before} to {offset}")
            self.highest[partition] = max(before, offset)
        return found

    def seen(self):
        places = set()
        for path in LOGS.glob(f"{self.name}.*.seen"):
            for line in path.read_bytes().splitlines(keepends=True):
                # Who was killed may have printed half a line.
                words = line.split()
                if line.endswith(b"\n") and len(words) == 2:
                    places.add((int(words[0]), int(words[1])))
        return places


class Sender(threading.Thread):
    """Writes at a steady rate, over kills of the broker."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.sent = 0
        self.start()

    def run(self):
        producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 20, "log_level": 0})
        while not self.stopping.wait(0.1):
            for _ in range(RECORDS_PER_SECOND // 10):
                producer.produce(TOPIC, b"", partition=self.sent % PARTITIONS, on_delivery=self.delivered)
                self.sent += 1
            producer.poll(0)
        left = producer.flush(60)
        if left:
            failures.append(f"{left} records were never acknowledged")

    def delivered(self, error, _):
        if error:
            failures.append(f"a record was not written: {error}")


def run(groups):
    """Until the time is over; the broker is killed while groups share out."""
    global kills
    end = began + SECONDS
    next_kill = began + dice.uniform(10, 20)
    while time.monotonic() < end and not failures:
        time.sleep(dice.uniform(0.3, 1.2))
        group = dice.choice(groups)
        group.step()
        for each in groups:
            each.look()
            each.watch()
        if time.monotonic() >= next_kill and not KILL.exists():
            for each in groups:
                each.step()
            time.sleep(dice.uniform(0.1, 1.5))
            say("the broker is killed")
            kills += 1
            KILL.touch()
            next_kill = time.monotonic() + dice.uniform(15, 30)


def settle(groups, wanted):
    """Everybody goes on, and what has been written is read."""
    for group in groups:
        for member in group.members:
            member.resume()
        if not group.members:
            group.join()
    deadline = time.monotonic() + PATIENCE
    open_groups = list(groups)
    while open_groups and not failures and time.monotonic() < deadline:
        time.sleep(0.5)
        for group in groups:
            group.look()
        open_groups = [group for group in open_groups if group.watch() != wanted]
    for group in open_groups:
        failures.append(f"{group.name} has committed {group.committed()}, not {wanted}")


def end_all(groups):
    """In order; after a failure nobody is waited for."""
    in_order = not failures
    everybody = [member for group in groups for member in group.members + group.gone]
    for member in everybody:
        if member.process.poll() is None:
            member.process.send_signal(signal.SIGCONT)
            member.process.terminate()
    deadline = time.monotonic() + (60 if in_order else 0)
    for member in everybody:
        try:
            member.process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            if in_order:
                failures.append(f"{member.name} does not end: {member.tail()}")
            member.process.kill()


def main():
    LOGS.mkdir()
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result(10)
    sender = Sender()
    groups = [Group(name) for name in GROUPS]
    for group in groups:
        group.join()
    try:
        run(groups)
        sender.stopping.set()
        sender.join()
        ends = {partition: len(range(partition, sender.sent, PARTITIONS)) for partition in range(PARTITIONS)}
        say(f"{sender.sent} records are written")
        if not failures:
            settle(groups, ends)
    finally:
        end_all(groups)
    say("everybody has left")
    for group in groups if not failures else []:
        seen = group.seen()
        missing = [(p, o) for p in range(PARTITIONS) for o in range(ends[p]) if (p, o) not in seen]
        if missing:
            failures.append(f"{group.name}: {len(missing)} records were never seen, as {missing[:5]}")
    for failure in failures:
        print("FAILED", failure)
    print("ok" if not failures else f"seed {SEED}")
    return 1 if failures else 0


sys.exit(main())
