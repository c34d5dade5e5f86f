/**
 * A job shows the same before its leader dies and when another scheduler leads. Each field is equal, or is
 * listed here as one that is asked again or that changes with time.
 */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { Client } from '../../src/library/client/client.js';
import { setSavePlan } from '../../src/library/tools/checkpoints.js';
import type { JobStatus } from '../../src/protocol/messages.js';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import {
  COUNTING,
  client,
  Pusher,
  ps,
  redundant,
  statusWhere,
  temporaryDirectory,
} from '../roles/support.js';
import { Etcd, hasEtcd } from '../stores/decisions/etcd-server.js';
import { kintsugi, type Running, record, start } from './support.js';

/** Fields that change with time alone, by the end of their paths. */
const VOLATILE = [
  /\.last\.agoMs$/,
  /^replicas\.\d+\.(lagMs|behind)$/,
  /^workers\.[^.]+\.(agoMs|upSeconds|cpuSeconds|rssBytes|clockMs|idleSeconds|phaseSeconds\.read)$/,
  /^runs\.[^.]+\.(allocatedSeconds|idleSeconds|phaseSeconds\.read)$/,
];
/** Samples that workers had told another scheduler of: rates do without them. */
const OF_THIS_SCHEDULER = [/^runs\.[^.]+\.inheritedSamples$/];

/** All leaves of a value, by path; entries of lists by their names where they have any. */
function leaves(value: unknown, path = '', into = new Map<string, unknown>()): Map<string, unknown> {
  if (typeof value !== 'object' || value === null) return into.set(path, value);
  const isList = Array.isArray(value);
  if (isList) into.set(`${path}.length`, value.length);
  for (const [key, each] of Object.entries(value)) {
    const { name, run } = (each ?? {}) as { name?: string; run?: string };
    const at = isList ? (name ?? run ?? key) : key;
    leaves(each, path === '' ? at : `${path}.${at}`, into);
  }
  return into;
}

function differences(before: unknown, after: unknown): string[] {
  const [one, other] = [leaves(before), leaves(after)];
  const free = [...VOLATILE, ...OF_THIS_SCHEDULER];
  return [...new Set([...one.keys(), ...other.keys()])]
    .filter((path) => one.get(path) !== other.get(path) && !free.some((each) => each.test(path)))
    .map((path) => `${path}: ${one.get(path)} before, ${other.get(path)} after`);
}

async function shown(from: string): Promise<JobStatus> {
  const { code, stdout } = await kintsugi(['status', '--json', '--scheduler', from]);
  expect(code).toBe(0);
  return JSON.parse(stdout) as JobStatus;
}

/** Reports of the workers to the scheduler. */
async function work(from: Client) {
  const { workers, runs, silent } = (await from.observe()).scheduler;
  return { workers, runs, silent };
}

function role(args: string[]): Running {
  const running = start([...args, '--log-format', 'json']);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

it.skipIf(!hasEtcd)(
  'another scheduler shows what the one that died has shown',
  async () => {
    const etcd = await Etcd.start();
    const directory = temporaryDirectory();
    const flags = ['--store', etcd.url(), '--store-lease', '2s', '--ps', '4', '--code', '2+1'];
    const begin = () => role(['scheduler', '--listen', '127.0.0.1:0', ...flags]);
    const first = begin();
    const address = String((await record(first, 'scheduler.ready')).address);
    const next = begin();
    const standing = String((await record(next, 'scheduler.standby')).address);
    const both = `${address},${standing}`;
    for (let i = 0; i < 4; i++) await ps({ scheduler: both, name: `ps-${i}`, hostLabel: `host-${i}` });
    const trainer = await client(both, { connectTimeoutMs: 30_000 });
    await trainer.createTable({ name: 'counts', ...COUNTING });
    const pusher = new Pusher(trainer, 'counts', 200, 0);
    await pusher.more(3);
    await pusher.stop();
    // A checkpoint, and one that failed.
    const place = join(directory, 'checkpoints');
    await setSavePlan(trainer, 'checkpoint', { url: place, everyMs: 0, keep: 3, rate: 0, kind: 'full job' });
    await trainer.checkpoint();
    rmSync(place, { recursive: true });
    writeFileSync(place, 'not a directory');
    await expect(trainer.checkpoint()).rejects.toMatchObject({ code: 'PLACE_FAILED' });
    // A worker that has ended, and one that waits for more.
    const [data, test] = [join(directory, 'train.tsv'), join(directory, 'test.tsv')];
    await writeDemoData({ train: data, test, rows: 2000, testRows: 10, keys: 100, seed: 1 });
    const model = ['--dim', '4', '--bottom', '8-4', '--top', '4-1', '--batch', '100'];
    const worker = ['worker', '--scheduler', both, '--data', data, ...model];
    expect((await role([...worker, '--run', 'over', '--name', 'over']).ended).code).toBe(0);
    const following = role([...worker, '--run', 'goes-on', '--name', 'goes-on', '--follow']);
    await record(following, 'worker.training');
    const settled = (from: Client) =>
      expect
        .poll(
          async () => {
            const { runs, workers } = await work(from);
            return [runs.find(({ run }) => run === 'goes-on')?.samples, workers.map(({ name }) => name)];
          },
          { timeout: 60_000 },
        )
        .toEqual([2000, ['goes-on']]);
    await settled(trainer);
    await redundant(trainer, 4);
    const before = { status: await shown(both), ...(await work(trainer)) };
    expect(before.runs.map(({ run, samples }) => [run, samples]).sort()).toEqual([
      ['goes-on', 2000],
      ['over', 2000],
    ]);
    expect(before.status.saving).toMatchObject([{ last: { number: 1 }, failure: { code: 'PLACE_FAILED' } }]);

    first.process.kill('SIGKILL');
    await record(next, 'scheduler.ready');
    // At once: what is not known is said to be not known.
    const early = await trainer.status();
    for (const node of early.nodes) {
      const known = before.status.nodes.find(({ id }) => id === node.id)!;
      if (node.reported !== false) expect([node.rows, node.bytes]).toEqual([known.rows, known.bytes]);
    }
    await statusWhere(trainer, 'reports of all', ({ nodes }) =>
      nodes.every(({ reported }) => reported !== false),
    );
    await redundant(trainer, 4);
    await settled(trainer);
    const after = { status: await shown(both), ...(await work(trainer)) };
    const { status: was, ...toldBefore } = before;
    const { status: is, ...toldAfter } = after;
    expect(differences(was, is)).toEqual([]);
    expect(differences(toldBefore, toldAfter)).toEqual([]);
  },
  90_000,
);
