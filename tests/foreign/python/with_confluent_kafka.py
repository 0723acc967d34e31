"""Writes and reads with confluent-kafka. Usage: with_confluent_kafka.py HOST:PORT"""

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
TOPIC = "with-confluent-kafka"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])[TOPIC].result(10)
try:
    admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])[TOPIC].result(10)
    raise AssertionError("the topic was made twice")
except KafkaException as error:
    assert error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, error

sent, offsets, failures = [], [], []


def delivered(error, message):
    if error is not None:
        failures.append(error)
    else:
        offsets.append(message.offset())


for codec in CODECS:
    for acks in (1, "all"):
        producer = Producer({"bootstrap.servers": BOOTSTRAP, "compression.type": codec, "acks": acks})
        for number in range(100):
            value = f"{codec} {acks} {number}".encode()
            producer.produce(TOPIC, value, b"k", partition=1, headers=[("h", b"x")], on_delivery=delivered)
            sent.append(value)
        assert producer.flush(20) == 0
assert not failures, failures[:3]
assert offsets == list(range(len(sent)))

partition = TopicPartition(TOPIC, 1, OFFSET_BEGINNING)
consumer = Consumer(
    {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": "unused",
        "enable.auto.commit": False,
        "check.crcs": True,
    }
)
consumer.assign([partition])
got = []
deadline = time.monotonic() + 30
while len(got) < len(sent) and time.monotonic() < deadline:
    message = consumer.poll(0.5)
    if message is None:
        continue
    assert message.error() is None, message.error()
    assert message.offset() == len(got) and message.key() == b"k"
    assert message.headers() == [("h", b"x")]
    got.append(message.value())
assert got == sent, f"{len(got)} of {len(sent)}"
assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 1), timeout=10) == (0, len(sent))
assert consumer.offsets_for_times([TopicPartition(TOPIC, 1, 0)], timeout=10)[0].offset == 0
consumer.close()

admin.delete_topics([TOPIC])[TOPIC].result(10)
assert TOPIC not in admin.list_topics(timeout=10).topics
print("ok")
