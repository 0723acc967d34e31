// Writes and reads with KafkaJS. The steps are those of ../README.md.
import assert from 'node:assert/strict'
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import { lz4Compress, lz4Decompress } from '@platformatic/wasm-utils'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import { PATIENCE_MS, args, codecsTopic, group, records, same, shareInGroup, sharedTopic, until } from './steps.js'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs

// The library brings gzip only.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4Compress(encoder.buffer),
  decompress: async buffer => lz4Decompress(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zstdCompressSync(encoder.buffer),
  decompress: async buffer => zstdDecompressSync(buffer)
})

// By default a connection that is not there after a second is given up, also when it is this program that stood still.
const kafka = new Kafka({ brokers: [args.bootstrap], logLevel: logLevel.ERROR, connectionTimeout: PATIENCE_MS })
const admin = kafka.admin()

async function makeTopic () {
  const create = () => admin.createTopics({ topics: [{ topic: codecsTopic, numPartitions: 2 }] })
  assert.equal(await create(), true)
  assert.equal(await create(), false)
  assert((await admin.listTopics()).includes(codecsTopic))
}

async function alterTopic () {
  const resource = { type: ConfigResourceTypes.TOPIC, name: codecsTopic }
  const configEntries = [{ name: 'retention.ms', value: '3600000' }]
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] })
  const described = await admin.describeConfigs({ includeSynonyms: true, resources: [resource] })
  const entry = described.resources[0].configEntries.find(each => each.configName === 'retention.ms')
  assert.equal(entry.configValue, '3600000')
  await admin.createPartitions({ topicPartitions: [{ topic: codecsTopic, count: 3 }] })
}

async function produceEachCodec () {
  const all = []
  for (const [codec, compression] of Object.entries(CompressionTypes)) {
    for (const idempotent of [true, false]) {
      const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 })
      await producer.connect()
      const batch = records(`${codec}+${idempotent ? 'idempotent' : 'plain'}`)
      const [answer] = await producer.send({
        topic: codecsTopic,
        compression,
        acks: -1,
        messages: batch.map(record => ({ ...record, partition: 1 }))
      })
      assert.equal(Number(answer.baseOffset), all.length)
      all.push(...batch)
      await producer.disconnect()
    }
  }
  return all
}

// The library reads in groups only. This one has a single member, and its other partitions are empty.
async function readAll (count) {
  const got = []
  const consumer = kafka.consumer({ groupId: `${group}-alone` })
  await consumer.connect()
  await consumer.subscribe({ topic: codecsTopic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message: { key, value, headers } }) => got.push({
      key: key && key.toString(),
      value: value && value.toString(),
      headers: Object.fromEntries(Object.entries(headers).map(([name, each]) => [name, each.toString()]))
    })
  })
  await until('all is read', () => got.length >= count)
  await consumer.disconnect()
  return got
}

async function startMember (assigned, read) {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 500 })
  await consumer.connect()
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    assigned((payload.memberAssignment[sharedTopic] ?? []).length))
  await consumer.subscribe({ topic: sharedTopic, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => read(message.value.toString()) })
  return () => consumer.disconnect() // which commits
}

async function committed () {
  const topics = await admin.fetchOffsets({ groupId: group, topics: [sharedTopic] })
  return topics.flatMap(each => each.partitions).reduce((sum, each) => sum + Math.max(Number(each.offset), 0), 0)
}

async function deleteAll () {
  const listed = async () => (await admin.listGroups()).groups.map(each => each.groupId)
  assert((await listed()).includes(group))
  await until('the group is empty', async () =>
    (await admin.describeGroups([group])).groups[0].state === 'Empty')
  await admin.deleteGroups([group])
  assert(!(await listed()).includes(group))
  await admin.deleteTopics({ topics: [sharedTopic] })
  assert(!(await admin.listTopics()).includes(sharedTopic))
}

await admin.connect()
await makeTopic()
await alterTopic()
const sent = await produceEachCodec()
same(sent, await readAll(sent.length))

await admin.createTopics({ topics: [{ topic: sharedTopic, numPartitions: 6 }] })
const producer = kafka.producer()
await producer.connect()
await shareInGroup(messages => producer.send({ topic: sharedTopic, messages }), startMember, committed)
await producer.disconnect()
await deleteAll()
await admin.disconnect()
console.log('ok')
