/**
 * Trains topics of Kafka whose messages are objects of JSON, with a field per column of the schema.
 *
 *     npm install @platformatic/kafka
 *     kintsugi worker --source ./kafka.mjs --data kafka://broker-1:9092,broker-2:9092/clicks --follow \
 *       --schema schema.json
 *
 * A partition is a part of the data, and its offsets are the units of its ranges. The job keeps how far each
 * partition is trained, together with what was learned. So there is no group of consumers, nothing is
 * committed to Kafka, and nothing is rebalanced: any number of workers share the ranges as those of a file,
 * and each message is trained once, whatever dies.
 *
 * - Where retention has removed the beginning, `?from=1000` names the first offset to train, of each
 *   partition `?from=0:1000,1:2500`. It belongs to the data: all workers of a run name the same.
 * - Only what transactions have committed is trained. Messages must stay until they are trained, so the topic
 *   must not be compacted, and its retention must be longer than training may lag behind.
 * - Partitions must not be added during a run.
 * - Brokers may be away for ten minutes, and at the start for half a minute.
 *
 * @typedef {import('kintsugi-ps').Source} Source
 * @typedef {import('kintsugi-ps').SourceOptions} SourceOptions
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Consumer } from '@platformatic/kafka';
import { batchesOf } from 'kintsugi-ps';

/** Further options of the client of Kafka: `tls`, `sasl`. */
const CLIENT = {};

const START_MS = 30_000;
const AWAY_MS = 600_000;
const RETRY_MS = 500;
/** Most bytes of one answer. */
const FETCH_BYTES = 1 << 20;
const EARLIEST = -2n;
const LATEST = -1n;
/** Attributes of a batch of messages: part of a transaction, the end of one. */
const TRANSACTIONAL = 0x10;
const CONTROL = 0x20;
const ABORT = 0;

/** A failure that waiting does not cure. */
class Final extends Error {}

/** `kafka://broker:port,.../topic?from=...` */
function topicOf(path) {
  const [, brokers, topic, from = '0'] =
    /^kafka:\/\/([^/]+)\/([\w.-]+)(?:\?from=([\d:,]+))?$/.exec(path) ?? [];
  if (topic === undefined)
    throw new Final(`${path} must be kafka://BROKER:PORT/TOPIC, perhaps with ?from=OFFSET`);
  const each = new Map(from.split(',').map((text) => (text.includes(':') ? text.split(':') : ['all', text])));
  const first = (partition) => Number(each.get(String(partition)) ?? each.get('all') ?? 0);
  return { path, topic, first, brokers: brokers.split(',') };
}

/** A consumer whose group never consumes anything. `retries` is 0: this file repeats requests itself. */
function connect({ brokers }) {
  const client = { clientId: 'kintsugi', groupId: 'kintsugi', bootstrapBrokers: brokers, retries: 0 };
  return new Consumer({ ...client, ...CLIENT });
}

function reasonOf(error) {
  const causes = error?.errors?.length > 0 ? error.errors : [error];
  return causes.map((cause) => (cause === error ? error.message : reasonOf(cause))).join('; ');
}

const isError = (error, name) =>
  error?.apiId === name || (error?.errors ?? []).some((each) => isError(each, name));

/** The values of committed messages, from an answer. `open`: producers of transactions that were aborted. */
function* committed({ records = [], abortedTransactions }) {
  const aborted = [...(abortedTransactions ?? [])].sort((a, b) => Number(a.firstOffset - b.firstOffset));
  const open = new Set();
  for (const { firstOffset, lastOffsetDelta, attributes, producerId, records: messages } of records) {
    const last = firstOffset + BigInt(lastOffsetDelta);
    while (aborted.length > 0 && aborted[0].firstOffset <= last) open.add(aborted.shift().producerId);
    if (attributes & CONTROL) {
      if (messages[0]?.key?.readInt16BE(2) === ABORT) open.delete(producerId);
    } else if (!(attributes & TRANSACTIONAL && open.has(producerId))) {
      for (const { offsetDelta, value } of messages)
        yield { offset: Number(firstOffset) + offsetDelta, value };
    }
  }
}

/** Messages in another form are read here. */
function sampleOf(value, where) {
  const text = value?.toString('utf8') ?? 'null';
  let sample;
  try {
    sample = JSON.parse(text);
  } catch {}
  if (typeof sample === 'object' && sample !== null) return sample;
  throw new Final(`${where}: must be an object of JSON, not ${text.slice(0, 60)}`);
}

/** @type {(options: SourceOptions) => Promise<Source>} */
export default async function kafka({ paths, schema }) {
  const topics = paths.map(topicOf);
  const consumers = topics.map(connect);
  let awayMs = START_MS;
  let closed = false;

  /** Brokers come and go: what fails is done again for a while. */
  async function patiently(what, consumer, work, onRead = () => {}) {
    for (const deadline = Date.now() + awayMs; ; ) {
      try {
        return await work();
      } catch (error) {
        if (error instanceof Final) throw error;
        if (closed || Date.now() > deadline) throw new Error(`${what}: ${reasonOf(error)}`, { cause: error });
        consumer.clearMetadata();
        onRead();
        await sleep(RETRY_MS);
      }
    }
  }

  /** The first offset of each partition that there is, or the one behind the last that is committed. */
  async function offsets(index, timestamp) {
    const [{ path, topic }, consumer] = [topics[index], consumers[index]];
    const found = await patiently(path, consumer, () => consumer.listOffsets({ topics: [topic], timestamp }));
    return found.get(topic).map(Number);
  }

  const parts = [];
  for (const [index, { path, topic, first }] of topics.entries()) {
    const consumer = consumers[index];
    const { id, partitions } = await patiently(path, consumer, async () => {
      const found = (await consumer.metadata({ topics: [topic] })).topics.get(topic);
      if (!found) throw new Error(`there is no topic "${topic}"`);
      return found;
    });
    const earliest = await offsets(index, EARLIEST);
    for (const partition of partitions.keys()) {
      const from = first(partition);
      if (earliest[partition] > from)
        throw new Final(
          `${path}: partition ${partition} begins at ${earliest[partition]}: name it with ?from=`,
        );
      // A topic that is made anew has another id, and so other data.
      parts.push({ index, partition, from, id, name: `${topic}/${partition} from ${from} (${id})` });
    }
  }

  awayMs = AWAY_MS;

  async function sizes() {
    const ends = await Promise.all(topics.map((_, index) => offsets(index, LATEST)));
    return parts.map(({ index, partition, from }) => Math.max(0, ends[index][partition] - from));
  }

  /** Messages of the offsets `begin` to `end` of a partition, as objects. */
  async function* messages({ index, partition, id }, begin, end, onRead) {
    const { path, topic } = topics[index];
    const where = `${path}: partition ${partition}`;
    const consumer = connect(topics[index]);
    consumer.topics.track(topic);
    /** The answer to a question for what comes from `at` on, which is there. */
    const fetch = async (at) => {
      const found = (await consumer.metadata({ topics: [topic] })).topics.get(topic);
      const { leader } = found.partitions[partition];
      const fetchOffset = BigInt(at);
      const epochs = { currentLeaderEpoch: -1, lastFetchedEpoch: -1 };
      const asked = { partition, fetchOffset, partitionMaxBytes: FETCH_BYTES, ...epochs };
      const one = { topicId: id, partitions: [asked] };
      const answer = await consumer
        .fetch({ node: leader, topics: [one], maxWaitTime: 1000 })
        .catch(async (error) => {
          if (!isError(error, 'OFFSET_OUT_OF_RANGE')) throw error;
          const earliest = (await offsets(index, EARLIEST))[partition];
          if (earliest > at)
            throw new Final(`${where}: ${at} to ${earliest} were removed before they were trained`);
          throw error;
        });
      const part = answer.responses[0]?.partitions[0];
      if (!part?.records?.length) throw new Error(`no answer has what comes from offset ${at} on`);
      return part;
    };
    try {
      for (let at = begin; at < end; ) {
        const part = await patiently(`${where}, offset ${at}`, consumer, () => fetch(at), onRead);
        for (const { offset, value } of committed(part)) {
          if (offset < at || offset >= end) continue;
          yield sampleOf(value, `${where}, offset ${offset}`);
        }
        const last = part.records.at(-1);
        at = Number(last.firstOffset) + last.lastOffsetDelta + 1;
        onRead?.();
      }
    } finally {
      await consumer.close(true).catch(() => {});
    }
  }

  return {
    async list() {
      const now = await sizes();
      return parts.map(({ name }, index) => ({ name, size: now[index] }));
    },
    read({ part, begin, end, batch, onRead }) {
      const { from, name } = parts[part];
      const samples = messages(parts[part], from + begin, from + end, onRead);
      return batchesOf(schema, samples, batch, `${name}, offsets ${from + begin} to ${from + end}`);
    },
    sizes,
    async close() {
      closed = true;
      await Promise.all(consumers.map((consumer) => consumer.close(true).catch(() => {})));
    },
  };
}
