"""What the programs of ../README.md share: records, comparisons and the steps with groups."""

import sys
import threading
import time

SHARED_PARTITIONS = 6
PATIENCE_S = 60
RETENTION_MS = "3600000"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

BOOTSTRAP, PREFIX = sys.argv[1:3]
COUNT, MEMBERS = int(sys.argv[3]), int(sys.argv[4])
CODECS_TOPIC = f"{PREFIX}-codecs"
SHARED_TOPIC = f"{PREFIX}-shared"
GROUP = PREFIX


def label(codec, idempotent):
    return f"{codec}+{'idempotent' if idempotent else 'plain'}"


def records(of):
    """Those that are sent under a label, as (key, value, headers)."""
    return [
        (
            None if n % 3 == 0 else f"key-{n}".encode(),
            None if n % 6 == 4 else f"{of} {n}".encode(),
            [("number", str(n).encode()), ("empty", b"")],
        )
        for n in range(COUNT)
    ]


def each_kind():
    """Codecs, idempotent and not, with the records that are sent so."""
    for codec in CODECS:
        for idempotent in (True, False):
            yield codec, idempotent, records(label(codec, idempotent))


def producer_options(codec, idempotent):
    """By the names of kafka-python, which aiokafka took over."""
    return {
        "bootstrap_servers": BOOTSTRAP,
        "compression_type": None if codec == "none" else codec,
        "acks": "all" if idempotent else 1,
        "enable_idempotence": idempotent,
    }


def member_options():
    """By the same names. A member that stands still for longer than its session reads again what it has read."""
    return {
        "bootstrap_servers": BOOTSTRAP,
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 500,
        "session_timeout_ms": 30_000,
    }


def same(sent, got):
    assert len(sent) == len(got), f"sent {len(sent)} records, read {len(got)}"
    for n, (wanted, read) in enumerate(zip(sent, got)):
        assert wanted == read, f"record {n}: sent {wanted}, read {read}"


def same_values(sent, got):
    """Each value was read once, in any order."""
    assert sorted(sent) == sorted(got), f"sent {len(sent)} values, read {len(got)} or others"


def values(round_name):
    """Those that a group reads, with their partitions."""
    return [(f"{round_name} {n}".encode(), n % SHARED_PARTITIONS) for n in range(COUNT)]


def until(what, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


class Members:
    """Runs members as threads.

    run(read, assigned, stop, committed) reads until stop is set, commits, calls committed and leaves. None leaves
    before all have committed: the others would lose their partitions, and with them what they have not committed.
    """

    def __init__(self, run, count):
        self.values, self.assigned, self.failures = [], [0] * count, []
        self.stop = threading.Event()
        self.committed = threading.Barrier(count, timeout=PATIENCE_S)
        self.threads = [threading.Thread(target=self._run, args=(run, n)) for n in range(count)]

    def _run(self, run, number):
        def assigned(partitions):
            self.assigned[number] = partitions

        try:
            run(self.values.append, assigned, self.stop, self.committed.wait)
        except BaseException as failure:
            self.failures.append(failure)
            self.committed.abort()
            raise

    def consume(self, once_assigned):
        """Calls once each member has its partitions, and returns what they read."""
        for thread in self.threads:
            thread.start()
        try:
            own = SHARED_PARTITIONS // len(self.threads)
            until("every member has its partitions", lambda: all(a == own for a in self.assigned))
            once_assigned()
            until("the members read all", lambda: len(self.values) >= COUNT or self.failures)
            time.sleep(0.1)  # for what must not come
        finally:
            self.stop.set()
            for thread in self.threads:
                thread.join(PATIENCE_S)
        assert not self.failures, self.failures
        return self.values


def share_in_group(produce, run):
    """The steps with groups. produce sends pairs of a value and a partition."""
    sent = values("first")
    got = Members(run, MEMBERS).consume(lambda: produce(sent))
    same_values([value for value, _ in sent], got)
    sent = values("second")
    produce(sent)
    got = Members(run, 1).consume(lambda: None)
    same_values([value for value, _ in sent], got)
