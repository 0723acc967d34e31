"""Writes and reads with kafka-python. Usage: with_kafka_python.py HOST:PORT"""

import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

BOOTSTRAP = sys.argv[1]
TOPIC = "with-kafka-python"
# snappy and lz4 would need further packages
CODECS = [None, "gzip"]

admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
admin.create_topics([NewTopic(name=TOPIC, num_partitions=2, replication_factor=1)])
try:
    admin.create_topics([NewTopic(name=TOPIC, num_partitions=2, replication_factor=1)])
    raise AssertionError("the topic was made twice")
except TopicAlreadyExistsError:
    pass

sent = []
for codec in CODECS:
    for acks in (1, "all"):
        producer = KafkaProducer(
            bootstrap_servers=BOOTSTRAP,
            compression_type=codec,
            acks=acks,
            enable_idempotence=False,
        )
        for number in range(100):
            value = f"{codec} {acks} {number}".encode()
            future = producer.send(TOPIC, value=value, key=b"k", partition=1, headers=[("h", b"x")])
            sent.append(value)
        assert future.get(timeout=10).offset == len(sent) - 1
        producer.close()

partition = TopicPartition(TOPIC, 1)
consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, group_id=None)
consumer.assign([partition])
consumer.seek_to_beginning(partition)
got = []
deadline = time.monotonic() + 30
while len(got) < len(sent) and time.monotonic() < deadline:
    for records in consumer.poll(timeout_ms=500).values():
        for record in records:
            assert record.offset == len(got), (record.offset, len(got))
            assert record.key == b"k" and record.headers == [("h", b"x")] or tuple(record.headers) == (("h", b"x"),)
            got.append(record.value)
assert got == sent, f"{len(got)} of {len(sent)}"
assert consumer.end_offsets([partition])[partition] == len(sent)
assert consumer.beginning_offsets([partition])[partition] == 0
assert consumer.offsets_for_times({partition: 0})[partition].offset == 0
consumer.close()

admin.delete_topics([TOPIC])
assert TOPIC not in admin.list_topics()
admin.close()
print("ok")
