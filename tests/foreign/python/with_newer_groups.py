"""Members of the newer protocol share a group, come and go. Usage: with_newer_groups.py HOST:PORT

Every record is read, and no partition is with two members once they share.
"""

import sys
import threading
import time

from confluent_kafka import Consumer, ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
TOPIC = "with-newer-groups"
LATE_TOPIC = "with-newer-groups-late"
GROUP = "newer-librdkafka"
PARTITIONS = 6
TOTAL = 600

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})


def make(topic, partitions):
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    admin.create_topics([new])[topic].result(60)


make(TOPIC, PARTITIONS)
seen = set()
lock = threading.Lock()


class Member(threading.Thread):
    def __init__(self, subscription, **more):
        super().__init__(daemon=True)
        self.assigned = set()
        self.stopping = threading.Event()
        self.failure = None
        self.subscription = subscription
        self.config = {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            **more,
        }
        self.start()

    def run(self):
        try:
            self.work(Consumer(self.config))
        except Exception as error:
            self.failure = error

    def work(self, consumer):
        def gets(_, partitions):
            self.assigned |= {(p.topic, p.partition) for p in partitions}
            consumer.incremental_assign(partitions)

        def gives(_, partitions):
            self.assigned -= {(p.topic, p.partition) for p in partitions}
            consumer.incremental_unassign(partitions)

        consumer.subscribe([self.subscription], on_assign=gets, on_revoke=gives, on_lost=gives)
        while not self.stopping.is_set():
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                with lock:
                    seen.add((message.topic(), message.partition(), message.offset()))
        consumer.close()

    def leave(self):
        self.stopping.set()
        self.join(60)
        assert not self.is_alive(), "it does not end"
        assert self.failure is None, self.failure


def wait_for(what, holds):
    end = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < end, f"{what} never: {[m.assigned for m in members]}, {len(seen)} seen"
        for member in members:
            assert member.failure is None, member.failure
        time.sleep(0.05)


def counts():
    return sorted(len(member.assigned) for member in members)


def produce(topic, count):
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all"})
    for n in range(count):
        producer.produce(topic, key=str(n), value=str(n))
        producer.poll(0)
    assert producer.flush(60) == 0


def described():
    return admin.describe_consumer_groups([GROUP])[GROUP].result(60)


produce(TOPIC, TOTAL)
members = [Member(TOPIC)]
wait_for("one has all", lambda: counts() == [6])
members.append(Member(TOPIC, **{"group.remote.assignor": "uniform"}))
wait_for("two share", lambda: counts() == [3, 3])
members.append(Member(TOPIC, **{"group.instance.id": "static"}))
wait_for("three share", lambda: counts() == [2, 2, 2])
wait_for("all is read", lambda: len(seen) == TOTAL)
everything = [place for member in members for place in member.assigned]
assert len(everything) == len(set(everything)) == PARTITIONS, everything
wait_for("the group is stable", lambda: described().state == ConsumerGroupState.STABLE)
assert len(described().members) == 3, described().members

# By a pattern, which a topic matches that comes later.
members.append(Member(f"^{TOPIC}.*"))
wait_for("four share", lambda: counts() == [1, 1, 2, 2])
# One that still speaks the classic protocol (KIP-848, migration).
members.append(Member(TOPIC, **{"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}))
wait_for("five share", lambda: counts() == [1, 1, 1, 1, 2])
make(LATE_TOPIC, 1)
produce(LATE_TOPIC, 10)
wait_for("the pattern matches", lambda: (LATE_TOPIC, 0) in members[3].assigned)
wait_for("the late records", lambda: len(seen) == TOTAL + 10)
for member in members:
    member.leave()
# The static one may come again, so it is still a member.
wait_for(
    "only the static one is left", lambda: [m.group_instance_id for m in described().members] == ["static"]
)
print("ok")
