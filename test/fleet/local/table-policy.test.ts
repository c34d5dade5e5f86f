/** Jobs whose embedding tables have a policy: kills of PS and changes of their number change no bit. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi } from '../../cli/support.js';

// Two or three whole jobs, one after the other.
vi.setConfig({ testTimeout: 280_000 });

const ROWS = 6000;
const SHAPE = ['--ps', '4', '--code', '2+1', '--dim', '8', '--bottom', '16-8', '--top', '16-1'];
const EXACT = ['--workers', '1', '--deterministic', '--batch', '32', '--epochs', '2', '--respawn', '200ms'];
const EVICTION = 'evict=ttl(120),evict=minFrequency(3,40)';
/** Two workers and small batches: a job that lasts some seconds, in which most keys are rare. */
const LONG = ['--workers', '2', '--batch', '8', '--epochs', '2', '--respawn', '200ms'];
let directory = '';
let data = '';
/** With more keys. */
let many = '';

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-policy-'));
  data = join(directory, 'train.tsv');
  const held = join(directory, 'test.tsv');
  await writeDemoData({ train: data, test: held, rows: ROWS, testRows: 10, keys: 5000, seed: 1 });
  many = join(directory, 'many.tsv');
  await writeDemoData({ train: many, test: held, rows: ROWS, testRows: 10, keys: 40_000, seed: 1 });
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** A report, or undefined where all processes are killed. */
async function run(name: string, policy: string, ...args: string[]): Promise<RunReport> {
  const json = join(directory, `${name}.json`);
  const input = args.includes('--data') ? [] : ['--data', data, ...EXACT];
  const flags = ['local', ...input, ...SHAPE, ...args, '--table-policy', policy];
  const { code, stderr } = await kintsugi([...flags, '--json', json, '--quiet']);
  expect([code, stderr]).toEqual([args.includes('all@60%') ? 137 : 0, '']);
  return JSON.parse(readFileSync(json, 'utf8')) as RunReport;
}

function expectExact({ samples, pushes, parity }: RunReport): void {
  expect(samples).toMatchObject({ expected: 2 * ROWS, trained: 2 * ROWS, exactlyOnce: true });
  expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
  expect(parity).toMatchObject({ mismatched: 0, blocksUnprotected: 0 });
}

test.each(['admit=counter(2)', 'admit=bloom(2,20000,0.01)'])(
  '%s: kills and scalings do not change the digest, and rows are told by reason',
  async (admission) => {
    const policy = `${admission},${EVICTION}`;
    const quiet = await run('quiet', policy);
    expectExact(quiet);
    const [table] = quiet.tables.filter(({ expired }) => expired > 0);
    expect(table).toMatchObject({ deleted: 0 });
    for (const reason of ['expired', 'rare', 'refused'] as const) expect(table![reason]).toBeGreaterThan(0);
    // A worker that is killed while it pushes trains its batch again, on rows that some shards have changed.
    const kills = ['--kill', 'ps@15%', '--kill', 'ps@75%'];
    const scales = ['--scale', 'ps=6@30%', '--scale', 'ps=4@55%'];
    const struck = await run('struck', policy, ...kills, ...scales);
    expectExact(struck);
    expect(struck.digest).toBe(quiet.digest);
    expect(struck.failures.length).toBeGreaterThan(0);
    const told = struck.tables.find(({ name }) => name === table!.name)!;
    // The sums are lower: a lost PS takes its counts along.
    for (const reason of ['expired', 'rare', 'refused'] as const) expect(told[reason]).toBeGreaterThan(0);
  },
);

test('a job that goes on from a checkpoint admits the keys of a job that was never stopped', async () => {
  const policy = `admit=bloom(2,20000,0.01),${EVICTION}`;
  const place = join(directory, 'place');
  const often = ['--barrier', '--every', '200ms', '--checkpoint', place];
  const quiet = await run('never', policy);
  await run('stopped', policy, ...often, '--kill', 'all@60%');
  const again = await run('again', policy, ...often, '--restore', place);
  expect(again.samples).toMatchObject({ trained: 2 * ROWS, problems: [] });
  expect(again.restored).toMatchObject({ atLeastOnce: false });
  expect(again.digest).toBe(quiet.digest);
});

/** The embedding table of a run. */
const embedding = ({ tables }: RunReport) => tables.find(({ name }) => name === 'embedding')!;

test('rows go by seconds, through kills of PS and of the scheduler', async () => {
  const policy = 'admit=bloom(2,20000,0.01),evict=ttl(2s)';
  const kills = ['--kill', 'ps@20%', '--kill', 'scheduler@50%', '--kill', 'ps@75%'];
  const report = await run('seconds', policy, '--data', many, ...LONG, ...kills);
  expectExact(report);
  expect(report.failures.map(({ node }) => node)).toContain('scheduler');
  expect(report.failures).toHaveLength(3);
  expect(report).toMatchObject({ redundancy: 'full' });
  const { expired, refused, rows, ...others } = embedding(report);
  for (const count of [expired, refused, rows]) expect(count).toBeGreaterThan(0);
  expect(others).toMatchObject({ rare: 0, faint: 0, displaced: 0, deleted: 0 });
});

test('what keep holds, and what decay lets go, depends on no kill', async () => {
  const policy = 'evict=ttl(40),evict=keep(500),evict=minFrequency(3,20,0.9,100)';
  const quiet = await run('decayed', policy);
  expectExact(quiet);
  const kills = ['--kill', 'ps@20%', '--kill', 'scheduler@50%', '--kill', 'ps@75%'];
  const struck = await run('decayed and struck', policy, ...kills);
  expectExact(struck);
  expect(struck.digest).toBe(quiet.digest);
  expect(struck.failures).toHaveLength(3);
  for (const report of [quiet, struck])
    for (const reason of ['expired', 'rare'] as const)
      expect(embedding(report)[reason], reason).toBeGreaterThan(0);
});

test('no fewer rows than keep says, where batches of few keys follow and PS die', async () => {
  // Without keep, no more than the 26 * 32 keys of two batches are left.
  const kept = 3000;
  const kills = ['--kill', 'ps@40%', '--kill', 'ps@75%'];
  const report = await run('kept', `evict=ttl(1),evict=keep(${kept})`, ...kills);
  expectExact(report);
  expect(report.rows).toBeGreaterThanOrEqual(kept);
  expect(embedding(report).rows).toBeGreaterThanOrEqual(kept);
  expect(embedding(report).expired).toBeGreaterThan(0);
});
