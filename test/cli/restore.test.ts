/** `kintsugi restore --only-lost`: a job that has lost more than its code restores goes on. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Client, connect } from '../../src/library/client/client.js';
import type { JobStatus } from '../../src/protocol/messages.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { kintsugi } from './support.js';

const KEYS = BigUint64Array.from({ length: 200 }, (_, i) => BigInt(i));
const of = (value: number) => new Float32Array(4 * KEYS.length).fill(value);

let cluster: LocalCluster;
let client: Client;
let place = '';
const at = (): string[] => ['--scheduler', cluster.address];

beforeEach(async () => {
  place = mkdtempSync(join(tmpdir(), 'kintsugi-restore-'));
  cluster = await startLocalCluster({ code: '2+1', ps: 3, groups: 1, standby: 1 });
  client = await connect(cluster.address);
  const initializer = { kind: 'zeros' as const };
  await client.createTable({ name: 'items', dim: 4, optimizer: { kind: 'sgd', lr: -1 }, initializer });
});
afterEach(async () => {
  await client.close();
  await cluster.close();
  rmSync(place, { recursive: true, force: true });
});

const push = (value: number) => client.push([{ table: 'items', keys: KEYS, gradients: of(value) }]);

async function until(what: (status: JobStatus) => boolean): Promise<JobStatus> {
  for (;;) {
    const status = await client.status();
    if (what(status)) return status;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Numbers of keys that can be pulled, by value. */
async function values(): Promise<Map<number, number>> {
  const [rows] = await client.pull([{ table: 'items', keys: KEYS }]);
  const counts = new Map<number, number>();
  for (let i = 0; i < KEYS.length; i++) counts.set(rows![4 * i]!, (counts.get(rows![4 * i]!) ?? 0) + 1);
  return counts;
}

test('lost shards come back as they were, and everything else stays', async () => {
  await kintsugi(['checkpoint', 'set', place, '--every', '0s', ...at()]);
  await push(1);
  expect((await kintsugi(['checkpoint', 'now', ...at()])).code).toBe(0);
  expect(await kintsugi(['restore', place, '--only-lost', ...at()])).toMatchObject({
    code: 0,
    stdout: 'nothing is lost\n',
  });
  await push(10);
  await Promise.all([cluster.kill(0), cluster.kill(2)]);
  const lost = await until(({ redundancy }) => redundancy === 'lost');
  const [embedding] = lost.unrecoverable.filter(({ g }) => g === 0);
  expect(embedding).toMatchObject({ checkpoint: { url: place, number: 1 } });
  const status = await kintsugi(['status', ...at()]);
  expect(status.stdout).toContain(`kintsugi restore ${place}@1 --only-lost ${at().join(' ')}`);
  await cluster.restart(0);
  await cluster.restart(2);
  await until(({ nodes }) => nodes.filter(({ alive }) => alive).length >= 4);
  const json = await kintsugi(['restore', `${place}@1`, '--only-lost', '--json', ...at()]);
  const { number, agoMs, shards } = JSON.parse(json.stdout);
  expect(number).toBe(1);
  expect(agoMs).toBeGreaterThan(0);
  const rows = shards.find(({ pool }: { pool: string }) => pool === 'embedding').rows as number;
  expect(rows).toBe(embedding!.checkpoint!.rows);
  expect(await values()).toEqual(
    new Map([
      [1, rows],
      [11, KEYS.length - rows],
    ]),
  );
  // The client whose acknowledged pushes are gone goes on.
  await push(100);
  expect(await values()).toEqual(
    new Map([
      [101, rows],
      [111, KEYS.length - rows],
    ]),
  );
  await until(({ redundancy }) => redundancy === 'full');
}, 60_000);

test('what cannot be used is refused', async () => {
  const restore = (...args: string[]) => kintsugi(['restore', ...args, ...at()]);
  expect((await restore(place)).said).toEqual([expect.stringMatching(/BAD_ARGUMENT: .*--only-lost/)]);
  const none = await restore(place, '--only-lost');
  expect(none).toMatchObject({ code: 1, said: [expect.stringMatching(/CHECKPOINT_MISSING: /)] });
  await expect(client.restore(place, {} as never)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
});
