/** A topic of a real Kafka: each committed message is trained once, whatever dies (examples/kafka.mjs). */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import type { RunReport } from '../../src/fleet/local/report.js';
import { finishedRanges } from '../../src/fleet/local/samples.js';
import { connect } from '../../src/library/client/client.js';
import { Dataset, type DatasetStatus } from '../../src/library/client/dataset.js';
import { checkPushes } from '../../src/library/tools/audit.js';
import { startLocalCluster } from '../../src/roles/cluster.js';
import type { Running } from '../cli/support.js';
import { BROKER, example, prepare, produce, RESTART, restartBroker, startThere } from './support.js';

const PARTITIONS = 3;
const MODEL = ['--dim', '8', '--bottom', '8', '--top', '8-1', '--batch', '32'];
const directory = mkdtempSync(join(tmpdir(), 'kintsugi-kafka-'));
const schema = join(directory, 'schema.json');
let source = '';
/** A source with small answers: messages of transactions arrive in many of them, their ends in other ones. */
let small = '';

beforeAll(async () => {
  if (!BROKER) return;
  await prepare();
  source = example();
  small = example(1);
  const keys = ['user', 'item'].map((column) => ({ column, key: 'integer', table: `${column}s` }));
  writeFileSync(schema, JSON.stringify({ label: 'label', sparse: keys }));
}, 600_000);
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** A topic of its own. */
async function topicOf(name: string): Promise<{ topic: string; data: string }> {
  const topic = `${name}-${process.pid}-${Date.now()}`;
  await produce('create', topic, PARTITIONS);
  return { topic, data: `kafka://${BROKER}/${topic}` };
}

const events = (log: string) =>
  log.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line) as RoleEvent] : []));

describe.skipIf(!BROKER)('a topic', () => {
  test('that grows: a worker, a PS and the broker die, and each message counts once', async () => {
    const { topic, data } = await topicOf('follow');
    const cluster = await startLocalCluster({ ps: 3, code: '2+1', standby: 1 });
    onTestFinished(() => cluster.close());
    const client = await connect(cluster.address, { audit: true });
    onTestFinished(() => client.close());
    const workers: Running[] = [];
    onTestFinished(() => {
      for (const worker of workers) worker.process.kill('SIGKILL');
    });
    const worker = (name: string) => {
      const where = ['--scheduler', cluster.address, '--name', name, '--data', data, '--source', source];
      const how = ['--schema', schema, '--follow', '--range-batches', '4', '--audit', '--log-format', 'json'];
      const running = startThere(['worker', ...where, ...how, ...MODEL]);
      workers.push(running);
      return running;
    };
    /** Waits until so many samples are trained. */
    const trained = async (least: number): Promise<DatasetStatus> => {
      for (;;) {
        const status = await Dataset.status(client, 'train');
        const samples = status?.samples[0] ?? 0;
        if (status && samples >= least && status.finished + status.setAside.length === status.ranges)
          return status;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    };
    const [first, second] = [worker('a'), worker('b')];
    await produce('send', topic, PARTITIONS, 0, 2000);
    await trained(2000);
    await produce('abort', topic, PARTITIONS, 0, 250);
    await produce('commit', topic, PARTITIONS, 2000, 2300);
    const sending = produce('send', topic, PARTITIONS, 2300, 4000);
    await trained(2300);
    first.process.kill('SIGKILL');
    await sending;
    await cluster.kill(0);
    const third = worker('c');
    await third.line((line) => line.includes('"event":"worker.training"'));
    await trained(4000);
    let written = 4000;
    if (RESTART) {
      await produce('send', topic, PARTITIONS, written, 10_000);
      written = 10_000;
      await restartBroker();
    }
    const status = await trained(written);
    expect(status).toMatchObject({ samples: [written], setAside: [] });
    for (const each of [second, third]) each.process.kill('SIGTERM');
    const ended = await Promise.all(workers.map(({ ended }) => ended));
    expect(ended.map(({ signal, said }) => [signal, said])).toEqual([
      ['SIGKILL', []],
      ['SIGTERM', []],
      ['SIGTERM', []],
    ]);
    const told = finishedRanges(ended.flatMap(({ stderr }) => events(stderr)));
    expect(told).toHaveLength(status.finished);
    expect(await checkPushes(client, told)).toMatchObject({ lost: 0, duplicated: 0 });
  }, 600_000);

  test('that stays as it is, in a whole job; what is wrong is said in one line', async () => {
    const { topic, data } = await topicOf('whole');
    await produce('send', topic, PARTITIONS, 0, 3000);
    await produce('abort', topic, PARTITIONS, 0, 1000);
    await produce('send', topic, PARTITIONS, 3000, 3600);
    const json = join(directory, 'report.json');
    const shape = ['--ps', '3', '--code', '2+1', ...MODEL, '--range-batches', '4'];
    const local = async (address: string, ...flags: string[]) => {
      const what = ['--data', address, '--source', small, '--schema', schema, '--json', json, '--quiet'];
      return startThere(['local', ...what, ...shape, ...flags]).ended;
    };
    const kills = ['--kill', 'worker@30%', '--kill', 'ps@60%', '--respawn', '200ms'];
    for (const [address, expected] of [
      [data, 3600],
      // The first 100 messages of each partition are left out.
      [`${data}?from=100`, 3300],
    ] as const) {
      const { code, said } = await local(address, ...kills);
      expect([code, said]).toEqual([0, []]);
      const { samples, pushes } = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
      expect(samples).toMatchObject({ expected, trained: expected, exactlyOnce: true });
      expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
    }
    const wrong = await local(`kafka://${BROKER}`);
    expect([wrong.code, wrong.stderr]).toEqual([
      2,
      expect.stringContaining('must be kafka://BROKER:PORT/TOPIC'),
    ]);
  }, 600_000);
});
