// What the programs of ../README.md share: records and comparisons.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

export const SHARED_PARTITIONS = 6
export const PATIENCE_MS = 60_000

const [bootstrap, prefix, count, members] = process.argv.slice(2)
assert(members, 'usage: HOST:PORT PREFIX COUNT MEMBERS')
export const args = { bootstrap, prefix, count: Number(count), members: Number(members) }
export const codecsTopic = `${prefix}-codecs`
export const sharedTopic = `${prefix}-shared`
export const group = prefix

// The records that are sent under a label.
export function records (label) {
  return Array.from({ length: args.count }, (_, n) => ({
    key: n % 3 === 0 ? null : `key-${n}`,
    value: n % 6 === 4 ? null : `${label} ${n}`,
    headers: { number: String(n), empty: '' }
  }))
}

export function same (sent, got) {
  assert.equal(got.length, sent.length)
  for (let n = 0; n < sent.length; n++) assert.deepEqual(got[n], sent[n], `record ${n}`)
}

// Each value was read once, in any order.
export function sameValues (sent, got) {
  assert.deepEqual([...got].sort(), [...sent].sort())
}

export async function until (what, holds) {
  const deadline = Date.now() + PATIENCE_MS
  while (!await holds()) {
    assert(Date.now() < deadline, `not in time: ${what}`)
    await sleep(50)
  }
}

// Starts members, calls once each has its partitions, and returns what they read by then. A member is
// started by start(assigned, read) and gives back what stops it. None is stopped before all is committed: the others
// would lose their partitions, and with them what they have not committed.
export async function consume (members, start, onceAssigned, isCommitted) {
  const values = []
  const assigned = Array(members).fill(0)
  const stops = await Promise.all(assigned.map((_, member) =>
    start(partitions => { assigned[member] = partitions }, value => values.push(value))))
  await until('every member has its partitions', () =>
    assigned.every(own => own === SHARED_PARTITIONS / members))
  await onceAssigned()
  await until('the members read all', () => values.length >= args.count)
  await sleep(100) // for what must not come
  await until('the members have committed all', isCommitted)
  await Promise.all(stops.map(stop => stop()))
  return values
}

// The steps with groups. A produce sends values to partitions in turn; committed tells how many records the group has
// committed in sum.
export async function shareInGroup (produce, start, committed) {
  let count = 0
  const isCommitted = async () => await committed() >= count
  const send = async round => {
    count += args.count
    const values = Array.from({ length: args.count }, (_, n) => `${round} ${n}`)
    await produce(values.map((value, n) => ({ value, partition: n % SHARED_PARTITIONS })))
    return values
  }
  let sent
  sameValues(await consume(args.members, start, async () => { sent = await send('first') }, isCommitted), sent)
  sent = await send('second')
  sameValues(await consume(1, start, async () => {}, isCommitted), sent)
}
