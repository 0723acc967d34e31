"""Writes and reads with confluent-kafka (librdkafka). The steps are those of ../README.md."""

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from steps import *

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})


def create(topic, partitions):
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    admin.create_topics([new])[topic].result(PATIENCE_S)


def make_topic():
    create(CODECS_TOPIC, 2)
    try:
        create(CODECS_TOPIC, 2)
        raise AssertionError("the topic was made twice")
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, error
    assert CODECS_TOPIC in admin.list_topics(timeout=PATIENCE_S).topics


def alter_topic():
    set_it = ConfigEntry("retention.ms", RETENTION_MS, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, CODECS_TOPIC, incremental_configs=[set_it])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert described["retention.ms"].value == RETENTION_MS, described["retention.ms"]
    admin.create_partitions([NewPartitions(CODECS_TOPIC, 3)])[CODECS_TOPIC].result(PATIENCE_S)


def produce_each_codec():
    everything, offsets = [], []

    def delivered(error, message):
        assert error is None, error
        offsets.append(message.offset())

    for codec, idempotent, batch in each_kind():
        producer = Producer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "compression.type": codec,
                "enable.idempotence": idempotent,
            }
        )
        for key, value, headers in batch:
            producer.produce(
                CODECS_TOPIC, value, key, partition=1, headers=headers, on_delivery=delivered
            )
        assert producer.flush(PATIENCE_S) == 0
        everything += batch
    assert offsets == list(range(len(everything)))
    return everything


def consumer_of(**more):
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "heartbeat.interval.ms": 500,
            **more,
        }
    )


def read(count):
    consumer = consumer_of(**{"group.id": "unused"})
    consumer.assign([TopicPartition(CODECS_TOPIC, 1, OFFSET_BEGINNING)])
    got = []
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, timeout=0.5):
            assert message.error() is None, message.error()
            assert message.offset() == len(got)
            got.append((message.key(), message.value(), message.headers()))
    partition = TopicPartition(CODECS_TOPIC, 1)
    assert consumer.get_watermark_offsets(partition, timeout=PATIENCE_S) == (0, count)
    by_time = [TopicPartition(CODECS_TOPIC, 1, 0)]
    assert consumer.offsets_for_times(by_time, timeout=PATIENCE_S)[0].offset == 0
    consumer.close()
    return got


def member(read, assigned, stop, committed):
    consumer = consumer_of(**{"group.id": GROUP})
    consumer.subscribe([SHARED_TOPIC])
    while not stop.is_set():
        for message in consumer.consume(100, timeout=0.1):
            assert message.error() is None, message.error()
            read(message.value())
        assigned(len(consumer.assignment()))
    consumer.commit(asynchronous=False)
    committed()
    consumer.close()


def produce(pairs):
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for value, partition in pairs:
        producer.produce(SHARED_TOPIC, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def delete_all():
    def listed():
        return [each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid]

    def is_empty():
        described = admin.describe_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
        return described.state.name == "EMPTY"

    assert GROUP in listed()
    # The library leaves without waiting for ever for the answer.
    until("the group is empty", is_empty)
    admin.delete_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
    assert GROUP not in listed()
    admin.delete_topics([SHARED_TOPIC])[SHARED_TOPIC].result(PATIENCE_S)
    assert SHARED_TOPIC not in admin.list_topics(timeout=PATIENCE_S).topics


make_topic()
alter_topic()
sent = produce_each_codec()
same(sent, read(len(sent)))
create(SHARED_TOPIC, SHARED_PARTITIONS)
share_in_group(produce, member)
delete_all()
print("ok")
