"""One member of a group, which prints the partition and offset of each record before it commits it.

Usage: member.py LIBRARY HOST:PORT GROUP TOPIC PROTOCOL; SIGTERM ends it in order.
"""

import asyncio
import signal
import sys
import time

LIBRARY, BOOTSTRAP, GROUP, TOPIC, PROTOCOL = sys.argv[1:]
SESSION_MS = 6000
HEARTBEAT_MS = 500
stopping = False


def stop(*_):
    global stopping
    stopping = True


def saw(places):
    sys.stdout.write("".join(f"{partition} {offset}\n" for partition, offset in places))
    sys.stdout.flush()


class Commits:
    """Commits again what failed, when nothing more comes: how far the member has read of what it has by then."""

    def __init__(self, commit):
        self.commit = commit
        self.owed = False

    def __call__(self, *what):
        if not what and not self.owed:
            return
        self.owed = True
        try:
            self.commit(*what)
            self.owed = False
        except Exception as error:
            complain(error)


def complain(error):
    print(time.strftime("%H:%M:%S"), repr(error), file=sys.stderr, flush=True)


def confluent():
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if PROTOCOL == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings["session.timeout.ms"] = SESSION_MS
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        settings["partition.assignment.strategy"] = PROTOCOL
    consumer = Consumer(settings)
    # Callbacks keep a rebalance from going on while records are between poll and commit.
    incremental = PROTOCOL != "range"

    def gets(own, partitions):
        (own.incremental_assign if incremental else own.assign)(partitions)

    def gives(own, partitions):
        if incremental:
            own.incremental_unassign(partitions)
        else:
            own.unassign()

    consumer.subscribe([TOPIC], on_assign=gets, on_revoke=gives, on_lost=gives)
    commit = Commits(lambda *ends: consumer.commit(asynchronous=False, **({"offsets": ends[0]} if ends else {})))
    while not stopping:
        message = consumer.poll(0.2)
        if message is None:
            commit()
            continue
        if message.error():
            complain(message.error())
            continue
        saw([(message.partition(), message.offset())])
        commit([TopicPartition(TOPIC, message.partition(), message.offset() + 1)])
    consumer.close()


def kafka_python():
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.structs import OffsetAndMetadata

    assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
    consumer = None
    while consumer is None and not stopping:
        try:
            consumer = KafkaConsumer(
                TOPIC,
                bootstrap_servers=BOOTSTRAP,
                group_id=GROUP,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                partition_assignment_strategy=(assignors[PROTOCOL],),
            )
        except Exception as error:
            complain(error)
            time.sleep(0.2)
    commit = Commits(lambda *ends: consumer.commit(*ends))
    while not stopping:
        try:
            batches = consumer.poll(timeout_ms=200)
        except Exception as error:
            complain(error)
            time.sleep(0.2)
            continue
        saw([(of.partition, record.offset) for of, records in batches.items() for record in records])
        if batches:
            commit({of: OffsetAndMetadata(records[-1].offset + 1, "", -1) for of, records in batches.items()})
        else:
            commit()
    if consumer:
        consumer.close()


async def aiokafka():
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    assert PROTOCOL == "range"
    consumer = None
    while consumer is None and not stopping:
        consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=BOOTSTRAP,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        try:
            await consumer.start()
        except Exception as error:
            complain(error)
            await consumer.stop()
            consumer = None
            await asyncio.sleep(0.2)
    while not stopping:
        try:
            batches = await consumer.getmany(timeout_ms=200)
        except Exception as error:
            complain(error)
            await asyncio.sleep(0.2)
            continue
        saw([(of.partition, record.offset) for of, records in batches.items() for record in records])
        if batches:
            try:
                await consumer.commit({of: records[-1].offset + 1 for of, records in batches.items()})
            except Exception as error:
                complain(error)
    if consumer:
        await consumer.stop()


signal.signal(signal.SIGTERM, stop)
if LIBRARY == "confluent":
    confluent()
elif LIBRARY == "kafka-python":
    kafka_python()
elif LIBRARY == "aiokafka":
    asyncio.run(aiokafka())
else:
    sys.exit(f"there is no {LIBRARY}")
