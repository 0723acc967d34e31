"""Members of two clients share a group, come and go. Usage: with_groups.py HOST:PORT

Every record is seen, committed positions never move back, and at the end all is committed.
"""

import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

BOOTSTRAP = sys.argv[1]
TOPIC = "with-groups"
GROUP = "mixed"
PARTITIONS = 6
TOTAL = 3000

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result(60)

seen = set()
lock = threading.Lock()
done = threading.Event()
failures = []


def note(partition, offset):
    with lock:
        seen.add((partition, offset))


def confluent(stop):
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "partition.assignment.strategy": "range",
        }
    )

    # Callbacks keep a rebalance from going on while a record is between poll and commit: its commit would come after
    # those of the next owner, and move the position back.
    def gets(own, partitions):
        own.assign(partitions)

    def gives(own, partitions):
        own.unassign()

    consumer.subscribe([TOPIC], on_assign=gets, on_revoke=gives, on_lost=gives)
    try:
        while not stop.is_set() and not done.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            note(message.partition(), message.offset())
            try:
                consumer.commit(message, asynchronous=False)
            except Exception as error:
                # A rebalance took the partition away: the next owner reads the record again.
                if "REBALANCE" not in str(error) and "GENERATION" not in str(error) and "UNKNOWN_MEMBER" not in str(error):
                    failures.append(error)
    finally:
        consumer.close()


def python(stop):
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=BOOTSTRAP,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=200,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
    try:
        while not stop.is_set() and not done.is_set():
            for partition, records in consumer.poll(timeout_ms=100).items():
                for record in records:
                    note(partition.partition, record.offset)
    finally:
        consumer.close()


def start(kind):
    stop = threading.Event()
    thread = threading.Thread(target=kind, args=(stop,), daemon=True)
    thread.start()
    return thread, stop


watcher = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": GROUP, "enable.auto.commit": False})


def committed():
    asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    end = time.monotonic() + 60
    while True:
        try:
            return {p.partition: p.offset for p in watcher.committed(asked, timeout=60)}
        except KafkaException as error:
            # The library asks again by itself, but not for long: the coordinator may not be there yet.
            if not error.args[0].retriable() and "COORDINATOR" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.1)


producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all"})
sent = 0


def produce(count):
    global sent
    for _ in range(count):
        producer.produce(TOPIC, str(sent).encode(), partition=sent % PARTITIONS)
        sent += 1
    assert producer.flush(60) == 0


members = [start(confluent), start(python)]
highest = {}
for step in range(6):
    produce(TOTAL // 6)
    if step in (1, 3):
        members.append(start(confluent if step == 1 else python))
    if step in (2, 4):
        thread, stop = members.pop(0)
        stop.set()
        thread.join(30)
    for _ in range(5):
        for partition, offset in committed().items():
            assert offset >= highest.get(partition, -1001), (partition, offset, highest)
            highest[partition] = offset
        time.sleep(0.3)

wanted = {partition: TOTAL // PARTITIONS for partition in range(PARTITIONS)}
deadline = time.monotonic() + 120
while committed() != wanted and time.monotonic() < deadline:
    time.sleep(0.3)
last = committed()
done.set()
for thread, _ in members:
    thread.join(30)
watcher.close()
assert not failures, failures[:3]
assert last == wanted, (last, wanted)
missing = [(p, o) for p in range(PARTITIONS) for o in range(TOTAL // PARTITIONS) if (p, o) not in seen]
assert not missing, missing[:10]
print("ok")
