/** PS that end in order and are started again, as processes under load, with complete redundancy. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { bareJob } from '../../../src/fleet/local/measure.js';
import { Processes, psName } from '../../../src/fleet/local/processes.js';
import { type Client, connect, type Table } from '../../../src/library/client/client.js';
import { restart } from '../../../src/library/tools/restart.js';
import { CLI } from '../../cli/support.js';

const PS = 4;
const KEYS = BigUint64Array.from({ length: 4000 }, (_, i) => BigInt(i));
const DIM = 8;

let directory = '';
let processes: Processes;
let client: Client;
let table: Table;
const back: string[] = [];

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-restart-'));
  back.length = 0;
  const options = { ...bareJob(PS, '2+1', 4), cliPath: CLI };
  processes = new Processes({ options, directory, onEvent: () => {}, onBack: (name) => back.push(name) });
  await processes.startScheduler();
  await Promise.all(Array.from({ length: PS }, (_, index) => processes.startPs(index)));
  client = await connect(processes.address);
  table = await client.createTable({
    name: 'items',
    dim: DIM,
    optimizer: { kind: 'sgd', lr: -1 },
    initializer: { kind: 'zeros' },
  });
  // A job that was just formed has yet to hear from everybody.
  const redundancy = async () => (await client.status()).redundancy;
  await expect.poll(redundancy, { timeout: 60_000 }).toBe('full');
});
afterEach(async () => {
  await client.close();
  await processes.abandon();
  rmSync(directory, { recursive: true, force: true });
});

/**
 * Adds one to every row again and again and asks for the status all the time while `work` runs. Every request
 * must succeed, every status must say that redundancy is complete, and every row must be what was added.
 */
async function underLoad(work: () => Promise<unknown>): Promise<void> {
  let running = true;
  const seen = new Set<string>();
  const load = async () => {
    let pushes = 0;
    const ones = new Float32Array(KEYS.length * DIM).fill(1);
    for (; running || pushes < 3; pushes++) {
      await table.push(KEYS, ones);
      await table.pull(KEYS.subarray(0, 100));
    }
    return pushes;
  };
  const watch = async () => {
    while (running) {
      const { redundancy, reasons } = await client.status();
      seen.add([redundancy, ...reasons].join(' '));
    }
  };
  const loaded = load();
  const watched = watch();
  try {
    await processes.race(Promise.race([work(), Promise.all([loaded, watched])]));
  } finally {
    running = false;
  }
  await watched;
  const pushes = await loaded;
  expect([...seen]).toEqual(['full']);
  expect(new Set(await table.pull(KEYS))).toEqual(new Set([pushes]));
}

test('a rolling restart: the launcher starts each again', async () => {
  const before = (await client.status()).nodes;
  await underLoad(async () => {
    const all = await restart(client);
    expect(all.map(({ name, back }) => [name, back])).toEqual(before.map(({ name }) => [name, name]));
  });
  expect([...back].sort()).toEqual(before.map(({ name }) => name));
  const after = (await client.status()).nodes;
  expect(after.map(({ inc }) => inc)).toEqual(before.map(({ inc }) => inc + 1));
});

test('SIGTERM to each in turn, which whoever sent it starts again', async () => {
  await underLoad(async () => {
    for (let index = 0; index < PS; index++) {
      expect(await processes.terminate(psName(index))).toEqual({ code: 0, signal: null });
      await processes.startPs(index);
    }
  });
  const { nodes, scaling } = await client.status();
  expect(nodes.map(({ name }) => name)).toEqual(['ps-0', 'ps-1', 'ps-2', 'ps-3']);
  expect(scaling.changes.filter(({ kind }) => kind === 'drain').map(({ state }) => state)).toEqual(
    Array(PS).fill('done'),
  );
});
