"""Writes and reads with aiokafka. The steps are those of ../README.md, less the deletion of groups,
which the library does not have."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

from steps import *


async def create(admin, topic, partitions):
    answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
    for _, code, *_ in answer.topic_errors:
        if code:
            raise for_code(code)


async def make_topic(admin):
    await create(admin, CODECS_TOPIC, 2)
    try:
        await create(admin, CODECS_TOPIC, 2)
        raise AssertionError("the topic was made twice")
    except TopicAlreadyExistsError:
        pass
    assert CODECS_TOPIC in await admin.list_topics()


async def alter_topic(admin):
    def resource(configs):
        return ConfigResource(ConfigResourceType.TOPIC, CODECS_TOPIC, configs=configs)

    await admin.alter_configs([resource({"retention.ms": RETENTION_MS})])
    described = str(await admin.describe_configs([resource({"retention.ms": None})]))
    assert RETENTION_MS in described, described
    await admin.create_partitions({CODECS_TOPIC: NewPartitions(3)})


async def produce_each_codec():
    everything = []
    for codec, idempotent, batch in each_kind():
        async with AIOKafkaProducer(**producer_options(codec, idempotent)) as producer:
            sends = [
                await producer.send(CODECS_TOPIC, key=key, value=value, partition=1, headers=headers)
                for key, value, headers in batch
            ]
            offsets = [answer.offset for answer in await asyncio.gather(*sends)]
        assert offsets == list(range(len(everything), len(everything) + COUNT)), offsets
        everything += batch
    return everything


async def read(count):
    consumer = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, group_id=None)
    await consumer.start()
    partition = TopicPartition(CODECS_TOPIC, 1)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    got = []
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < count:
            record = await consumer.getone()
            got.append((record.key, record.value, list(record.headers)))
    assert (await consumer.end_offsets([partition]))[partition] == count
    assert (await consumer.offsets_for_times({partition: 0}))[partition].offset == 0
    await consumer.stop()
    return got


async def member(read, assigned, stop, committed):
    consumer = AIOKafkaConsumer(SHARED_TOPIC, **member_options())
    await consumer.start()
    while not stop.is_set():
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            for record in batch:
                read(record.value)
        assigned(len(consumer.assignment()))
    await consumer.commit()
    # The others may take their time, and heartbeats go on meanwhile.
    await asyncio.to_thread(committed)
    await consumer.stop()


async def produce(pairs):
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer:
        for value, partition in pairs:
            await producer.send(SHARED_TOPIC, value=value, partition=partition)


async def first_steps():
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    await make_topic(admin)
    await alter_topic(admin)
    sent = await produce_each_codec()
    same(sent, await read(len(sent)))
    await create(admin, SHARED_TOPIC, SHARED_PARTITIONS)
    await admin.close()


async def last_steps():
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    assert GROUP in [group for group, *_ in await admin.list_consumer_groups()]
    async with asyncio.timeout(PATIENCE_S):
        while "Empty" not in str(await admin.describe_consumer_groups([GROUP])):
            await asyncio.sleep(0.05)
    await admin.delete_topics([SHARED_TOPIC])
    assert SHARED_TOPIC not in await admin.list_topics()
    await admin.close()


asyncio.run(first_steps())
share_in_group(
    lambda pairs: asyncio.run(produce(pairs)),
    lambda *arguments: asyncio.run(member(*arguments)),
)
asyncio.run(last_steps())
print("ok")
