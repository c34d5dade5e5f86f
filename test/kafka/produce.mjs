// Writes to a topic of Kafka, for kafka.test.ts, which runs it where `@platformatic/kafka` is installed.
//   node produce.mjs BROKER create TOPIC PARTITIONS
//   node produce.mjs BROKER send TOPIC PARTITIONS FROM TO      samples FROM to TO
//   node produce.mjs BROKER abort TOPIC PARTITIONS FROM TO     the same, in a transaction that is aborted
//   node produce.mjs BROKER commit TOPIC PARTITIONS FROM TO    in one that is committed
import { setTimeout as sleep } from 'node:timers/promises';
import { Admin, Producer } from '@platformatic/kafka';

const [broker, command, topic, partitions, from, to] = process.argv.slice(2);
const client = {
  clientId: 'test',
  bootstrapBrokers: [broker],
  timeout: 60_000,
  retries: 1000,
  retryDelay: 500,
};

function messages() {
  const all = [];
  for (let id = Number(from); id < Number(to); id++) {
    const [user, item] = [(id * 7) % 300, (id * 13) % 500];
    const value = JSON.stringify({ id, user, item, label: (user + item) % 3 === 0 ? 1 : 0 });
    all.push({ topic, partition: id % Number(partitions), value: Buffer.from(value) });
  }
  return all;
}

async function create() {
  const admin = new Admin(client);
  await admin.createTopics({ topics: [topic], partitions: Number(partitions), replicas: 1 });
  // The topic is there when every partition has a leader.
  for (;;) {
    const found = await admin.metadata({ topics: [topic], forceUpdate: true }).catch(() => undefined);
    const leaders = found?.topics.get(topic)?.partitions.map(({ leader }) => leader) ?? [];
    if (leaders.length === Number(partitions) && leaders.every((leader) => leader >= 0)) break;
    await sleep(100);
  }
  await admin.close();
}

async function send(outcome) {
  const transactional = outcome && { transactionalId: `test-${process.pid}-${topic}`, idempotent: true };
  const producer = new Producer({ ...client, ...transactional });
  const transaction = outcome && (await producer.beginTransaction());
  const all = messages();
  for (let at = 0; at < all.length; at += 100) {
    const part = all.slice(at, at + 100);
    if (transaction) await transaction.send({ messages: part, acks: -1 });
    else await producer.send({ messages: part, acks: -1 });
  }
  if (transaction) await transaction[outcome]();
  await producer.close();
}

if (command === 'create') await create();
else await send(command === 'send' ? undefined : command);
