// Writes and reads with @platformatic/kafka. The steps are those of ../README.md.
import assert from 'node:assert/strict'
import {
  Admin, CompressionAlgorithms, Consumer, IncrementalAlterConfigOperationTypes, MessagesStreamFallbackModes, MessagesStreamModes,
  Producer, stringDeserializers, stringSerializers, ConfigResourceTypes
} from '@platformatic/kafka'
import {
  PATIENCE_MS, SHARED_PARTITIONS, args, codecsTopic, group, records, same, shareInGroup, sharedTopic, until
} from './steps.js'

const options = { clientId: 'foreign', bootstrapBrokers: [args.bootstrap], connectTimeout: PATIENCE_MS }
const admin = new Admin(options)

async function makeTopic () {
  const create = () => admin.createTopics({ topics: [codecsTopic], partitions: 2, replicas: 1 })
  await create()
  await assert.rejects(create(), error => error.findBy('apiId', 'TOPIC_ALREADY_EXISTS') !== null)
  assert((await admin.listTopics()).includes(codecsTopic))
}

async function alterTopic () {
  const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: codecsTopic }
  const set = { name: 'retention.ms', configOperation: IncrementalAlterConfigOperationTypes.SET, value: '3600000' }
  await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs: [set] }] })
  const [described] = await admin.describeConfigs({ resources: [{ ...resource, configurationKeys: ['retention.ms'] }] })
  assert.equal(described.configs[0].value, '3600000')
  await admin.createPartitions({ topics: [{ name: codecsTopic, count: 3, assignments: null }] })
}

async function produceEachCodec () {
  const all = []
  for (const compression of Object.values(CompressionAlgorithms)) {
    for (const idempotent of [true, false]) {
      const producer = new Producer({ ...options, serializers: stringSerializers, idempotent })
      const batch = records(`${compression}+${idempotent ? 'idempotent' : 'plain'}`)
      const { offsets: [{ offset }] } = await producer.send({
        compression,
        acks: idempotent ? -1 : 1,
        messages: batch.map(record => ({ ...outgoing(record), topic: codecsTopic, partition: 1 }))
      })
      assert.equal(Number(offset), all.length)
      all.push(...batch)
      await producer.close()
    }
  }
  return all
}

// What is undefined is sent as null.
function outgoing ({ key, value, headers }) {
  return { key: key ?? undefined, value: value ?? undefined, headers }
}

// The library reads in groups only. This one has a single member, and its other partitions are empty.
async function readAll (count) {
  const got = []
  const { stream, close } = await reader(`${group}-alone`, codecsTopic)
  stream.on('data', ({ key, value, headers }) =>
    got.push({ key: key ?? null, value: value ?? null, headers: Object.fromEntries(headers) }))
  await until('all is read', () => got.length >= count)
  await close()
  return got
}

async function reader (groupId, topic) {
  const consumer = new Consumer({ ...options, groupId, deserializers: stringDeserializers, maxWaitTime: 100 })
  const stream = await consumer.consume({
    topics: [topic],
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: MessagesStreamFallbackModes.EARLIEST,
    autocommit: true
  })
  const close = async () => {
    await stream.close()
    await consumer.close()
  }
  return { consumer, stream, close }
}

async function startMember (assigned, read) {
  const { consumer, stream, close } = await reader(group, sharedTopic)
  const look = () => assigned((consumer.assignments ?? []).flatMap(each => each.partitions).length)
  consumer.on('consumer:group:join', look)
  look()
  stream.on('data', message => read(message.value))
  return close
}

async function committed () {
  const partitionIndexes = Array.from({ length: SHARED_PARTITIONS }, (_, partition) => partition)
  const topics = [{ name: sharedTopic, partitionIndexes }]
  const [found] = await admin.listConsumerGroupOffsets({ groups: [{ groupId: group, topics }] })
  return found.topics.flatMap(each => each.partitions)
    .reduce((sum, each) => sum + Math.max(Number(each.committedOffset), 0), 0)
}

async function deleteAll () {
  assert((await admin.listGroups()).has(group))
  await until('the group is empty', async () =>
    (await admin.describeGroups({ groups: [group] })).get(group).state === 'Empty')
  await admin.deleteGroups({ groups: [group] })
  assert(!(await admin.listGroups()).has(group))
  await admin.deleteTopics({ topics: [sharedTopic] })
  assert(!(await admin.listTopics()).includes(sharedTopic))
}

await makeTopic()
await alterTopic()
const sent = await produceEachCodec()
same(sent, await readAll(sent.length))

await admin.createTopics({ topics: [sharedTopic], partitions: 6, replicas: 1 })
const producer = new Producer({ ...options, serializers: stringSerializers })
await shareInGroup(
  messages => producer.send({ messages: messages.map(each => ({ ...each, topic: sharedTopic })) }),
  startMember,
  committed
)
await producer.close()
await deleteAll()
await admin.close()
console.log('ok')
