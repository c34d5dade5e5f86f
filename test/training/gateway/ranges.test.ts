// Ranges that programs at a gateway lease: kept while they are heard, numbered, and finished once.
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type LocalCluster, startLocalCluster } from '../../../src/roles/cluster.js';
import { Gateway } from '../../../src/training/gateway/gateway.js';
import { COUNTING, silent, temporaryDirectory } from '../../roles/support.js';
import { Program } from './program.js';

const LEASE_MS = 1500;
const BATCH = 4;
const SAMPLES = 8;
const DATASET = {
  ...{ op: 'openDataset', name: 'run', files: [['numbers', SAMPLES]], rangeBytes: SAMPLES },
  ...{ batch: BATCH, epochs: 1, seed: 0 },
};
let cluster: LocalCluster;
let gateway: Gateway;
let path: string;

beforeEach(async () => {
  cluster = await startLocalCluster({ code: '1+1', ps: 2, schedulerPolicy: { leaseMs: LEASE_MS } });
  path = join(temporaryDirectory(), 'gateway.sock');
  gateway = await Gateway.open({ scheduler: cluster.address, socket: path, client: {}, log: silent });
});
afterEach(async () => {
  await gateway.close();
  await cluster.close();
});

async function joined(): Promise<Program> {
  const program = await Program.at(path);
  await program.value({ op: 'hello', version: 1 });
  await program.value({ op: 'createTable', table: { ...COUNTING, name: 'items' } });
  expect(await program.value(DATASET)).toMatchObject({ batch: BATCH });
  return program;
}

/** Batch `index` adds 1 to the rows of its samples. */
function batch(op: 'pushBatch' | 'skip', index: number): [message: object, payload: Uint8Array] {
  const keys = BigUint64Array.from({ length: BATCH }, (_, i) => BigInt(index * BATCH + i));
  const rows = new Float32Array(BATCH * 2).fill(1);
  const payload = Buffer.concat([new Uint8Array(keys.buffer), new Uint8Array(rows.buffer)]);
  const calls = [['items', 0, BATCH, BATCH * 8]];
  return [{ op, behind: true, range: 0, samples: BATCH, calls }, payload];
}

async function rows(program: Program): Promise<number[]> {
  const keys = BigUint64Array.from({ length: SAMPLES }, (_, i) => BigInt(i));
  const message = { op: 'pull', behind: true, calls: [['items', 0, SAMPLES, 0]] };
  const { payload } = await program.ask(message, new Uint8Array(keys.buffer));
  const floats = new Float32Array(Uint8Array.from(payload).buffer);
  return [...floats].filter((_, i) => i % 2 === 0);
}

const status = (program: Program) => program.value({ op: 'datasetStatus', name: 'run' });
const ONCE = Array.from({ length: SAMPLES }, () => 1);

it('a program trains a range, and everything is counted', async () => {
  const program = await joined();
  expect(await program.value({ op: 'acquire' })).toMatchObject({
    number: 0,
    begin: 0,
    end: SAMPLES,
    done: 0,
  });
  expect(await program.value(...batch('skip', 0))).toBe('BAD_ARGUMENT');
  const pushed = [0, 1].map((index) => program.value(...batch('pushBatch', index)));
  // `finish` waits for the pushes itself.
  expect(await program.value({ op: 'finish', range: 0 })).toBe(false);
  expect(await Promise.all(pushed)).toEqual([false, false]);
  expect(await program.value({ op: 'acquire' })).toBeNull();
  expect(await rows(program)).toEqual(ONCE);
  expect(await status(program)).toMatchObject({ complete: true, samples: [SAMPLES], redone: 0 });
  expect(await program.value(...batch('pushBatch', 0))).toBe('ABORTED');
});

it('a batch that says where to mark it with nonsense has not begun', async () => {
  const program = await joined();
  await program.value({ op: 'acquire' });
  const [message, payload] = batch('pushBatch', 0);
  expect(await program.value({ ...message, taken: 'x' }, payload)).toBe('BAD_ARGUMENT');
  for (const index of [0, 1]) expect(await program.value(...batch('pushBatch', index))).toBe(false);
  expect(await program.value({ op: 'finish', range: 0 })).toBe(false);
  expect(await rows(program)).toEqual(ONCE);
  expect(await status(program)).toMatchObject({ complete: true, samples: [SAMPLES] });
});

it('a program that is silent loses its range to another one, and neither applies a batch twice', async () => {
  const silentOne = await joined();
  await silentOne.value({ op: 'acquire' });
  await silentOne.value(...batch('pushBatch', 0));
  const other = await joined();
  // Given when the lease is over: nobody has said that the first program lives.
  expect(await other.value({ op: 'acquire' })).toMatchObject({ number: 0, done: 1, begun: 1 });
  expect(await silentOne.value(...batch('pushBatch', 1))).toBe(true);
  expect(await silentOne.value({ op: 'finish', range: 0 })).toBe(true);
  await other.value(...batch('skip', 0));
  expect(await other.value(...batch('pushBatch', 1))).toBe(false);
  expect(await other.value({ op: 'finish', range: 0 })).toBe(false);
  expect(await rows(other)).toEqual(ONCE);
  expect(await status(other)).toMatchObject({ complete: true, samples: [SAMPLES] });
});

it('a program that lost a range may have it again, and is told of the new lease alone', async () => {
  const first = await joined();
  await first.value({ op: 'acquire' });
  await first.value(...batch('pushBatch', 0));
  const other = await joined();
  expect(await other.value({ op: 'acquire' })).toMatchObject({ number: 0, done: 1 });
  // A program that hears of its loss says nothing more of the range.
  expect(await first.value(...batch('pushBatch', 1))).toBe(true);
  const again = first.value({ op: 'acquire' });
  await other.value({ op: 'giveBack', range: 0 });
  expect(await again).toMatchObject({ number: 0, done: 1 });
  expect(await first.value(...batch('skip', 0))).toBeUndefined();
  expect(await first.value(...batch('pushBatch', 1))).toBe(false);
  expect(await first.value({ op: 'finish', range: 0 })).toBe(false);
  expect(await rows(first)).toEqual(ONCE);
  expect(await status(first)).toMatchObject({ complete: true, samples: [SAMPLES] });
});

it('what a program held is given to others as soon as it is gone', async () => {
  const gone = await joined();
  await gone.value({ op: 'acquire' });
  const other = await joined();
  const next = other.value({ op: 'acquire' });
  gone.socket.destroy();
  expect(await next).toMatchObject({ number: 0, done: 0 });
});

it('nonsense about data sets is refused', async () => {
  const program = await joined();
  const refused: object[] = [
    { ...DATASET, name: 'other' },
    { ...DATASET, batch: 5 },
    { ...DATASET, files: [] },
    { ...DATASET, files: [['numbers']] },
    { ...DATASET, rangeBytes: 0 },
    { op: 'finish' },
    { op: 'extendDataset', sizes: [-1] },
    { op: 'fail', range: 0, batch: 0, code: 'NONSENSE' },
  ];
  for (const message of refused) expect(await program.value(message)).toBe('BAD_ARGUMENT');
  expect(await program.value({ op: 'finish', range: 9 })).toBe('ABORTED');
  const other = await Program.at(path);
  await other.value({ op: 'hello', version: 1 });
  expect(await other.value({ op: 'acquire' })).toBe('BAD_ARGUMENT');
});
