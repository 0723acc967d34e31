"""Writes and reads with kafka-python. The steps are those of ../README.md."""

import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError

from steps import *

admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


def make_topic():
    wanted = [NewTopic(name=CODECS_TOPIC, num_partitions=2, replication_factor=1)]
    admin.create_topics(wanted)
    try:
        admin.create_topics(wanted)
        raise AssertionError("the topic was made twice")
    except TopicAlreadyExistsError:
        pass
    assert CODECS_TOPIC in admin.list_topics()


def alter_topic():
    def resource(configs):
        return ConfigResource(ConfigResourceType.TOPIC, CODECS_TOPIC, configs=configs)

    admin.alter_configs([resource({"retention.ms": RETENTION_MS})])
    described = str(admin.describe_configs([resource(["retention.ms"])]))
    assert RETENTION_MS in described, described
    admin.create_partitions({CODECS_TOPIC: NewPartitions(3)})


def produce_each_codec():
    everything = []
    for codec, idempotent, batch in each_kind():
        producer = KafkaProducer(**producer_options(codec, idempotent))
        futures = [
            producer.send(CODECS_TOPIC, key=key, value=value, partition=1, headers=headers)
            for key, value, headers in batch
        ]
        offsets = [future.get(timeout=PATIENCE_S).offset for future in futures]
        assert offsets == list(range(len(everything), len(everything) + COUNT)), offsets
        everything += batch
        producer.close()
    return everything


def read(count):
    partition = TopicPartition(CODECS_TOPIC, 1)
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, group_id=None)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    got = []
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < deadline:
        for batch in consumer.poll(timeout_ms=500).values():
            got += [(record.key, record.value, list(map(tuple, record.headers))) for record in batch]
    assert consumer.end_offsets([partition])[partition] == count
    assert consumer.beginning_offsets([partition])[partition] == 0
    assert consumer.offsets_for_times({partition: 0})[partition].offset == 0
    consumer.close()
    return got


def member(read, assigned, stop, committed):
    consumer = KafkaConsumer(SHARED_TOPIC, **member_options())
    while not stop.is_set():
        for batch in consumer.poll(timeout_ms=100).values():
            for record in batch:
                read(record.value)
        assigned(len(consumer.assignment()))
    consumer.commit()
    committed()
    consumer.close()


def produce(pairs):
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP)
    for value, partition in pairs:
        producer.send(SHARED_TOPIC, value=value, partition=partition)
    producer.flush(PATIENCE_S)
    producer.close()


def delete_all():
    def listed():
        return [each["group_id"] for each in admin.list_groups()]

    assert GROUP in listed(), listed()
    until("the group is empty", lambda: "Empty" in str(admin.describe_groups([GROUP])))
    admin.delete_groups([GROUP])
    assert GROUP not in listed()
    admin.delete_topics([SHARED_TOPIC])
    assert SHARED_TOPIC not in admin.list_topics()


make_topic()
alter_topic()
sent = produce_each_codec()
same(sent, read(len(sent)))
admin.create_topics([NewTopic(name=SHARED_TOPIC, num_partitions=SHARED_PARTITIONS, replication_factor=1)])
share_in_group(produce, member)
delete_all()
admin.close()
print("ok")
