// One member of a group, which prints the partition and offset of each record before it commits it.
// Usage: member.js HOST:PORT GROUP TOPIC; SIGTERM ends it in order. Where the library gives up, which it does for good
// when no broker is there while it looks for the coordinator, it ends with GAVE_UP.
import kafkajs from 'kafkajs'

const GAVE_UP = 75
const [bootstrap, group, topic] = process.argv.slice(2)
const kafka = new kafkajs.Kafka({
  brokers: [bootstrap],
  logLevel: kafkajs.logLevel.WARN,
  retry: { retries: 1000, initialRetryTime: 100, maxRetryTime: 1000 }
})
const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
consumer.on(consumer.events.CRASH, ({ payload }) => {
  console.error(payload.error)
  if (!payload.restart) process.exit(GAVE_UP)
})
process.on('SIGTERM', async () => {
  await consumer.disconnect()
  process.exit(0)
})
// The broker may be away just now.
for (let ready = false; !ready;) {
  try {
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    ready = true
  } catch (error) {
    console.error(error)
    await new Promise(resolve => setTimeout(resolve, 200))
  }
}
await consumer.run({
  autoCommitInterval: 200,
  // What is resolved is committed now and then, and when partitions are taken away.
  eachMessage: async ({ partition, message }) => process.stdout.write(`${partition} ${message.offset}\n`)
})
