/** One signal for many requests at once. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { connect } from '../../../src/index.js';
import { begun, COUNTING, cluster, connected, keysOf, rejection } from '../../roles/support.js';

/** Node warns of a leak when a signal has more listeners than this. */
const WITHOUT_WARNING = 10;
const many = <T>(begin: () => T): T[] => Array.from({ length: 2 * WITHOUT_WARNING }, begin);

const warnings: string[] = [];
const note = ({ name }: Error) => warnings.push(name);
beforeEach(() => {
  warnings.length = 0;
  process.on('warning', note);
});
afterEach(() => {
  process.off('warning', note);
});
/** Warnings come in a later turn. */
const warned = async () => {
  await new Promise((resolve) => setImmediate(resolve));
  return warnings.filter((name) => name.startsWith('MaxListeners'));
};

it('pulls, pushes and questions to the scheduler wait for it without a warning', async () => {
  const job = await connected();
  const table = await job.createTable({ name: 't', ...COUNTING });
  const { signal } = new AbortController();
  const one = Float32Array.of(1, 1);
  await Promise.all([
    ...many(() => table.push(keysOf(5), one, { signal })),
    ...many(() => table.pull(keysOf(5), { signal })),
    ...many(() => table.set({ lr: -1 }, { signal })),
  ]);
  expect(await warned()).toEqual([]);
  expect(await table.pull(keysOf(5))).toEqual(Float32Array.of(20, 20));
});

it('pushes that wait for room wait for it without a warning, and all end with it', async () => {
  const job = await connected({ maxInFlightBytes: 1 });
  const table = await job.createTable({ name: 't', ...COUNTING });
  const stop = new AbortController();
  const { signal } = stop;
  const ends = many(() => rejection(table.push(keysOf(5), Float32Array.of(1, 1), { signal })));
  await begun(job);
  stop.abort();
  expect(new Set((await Promise.all(ends)).map(({ code }) => code))).toEqual(new Set(['ABORTED']));
  expect(await warned()).toEqual([]);
});

it('a signal of another maker may call its listeners without `this`', async () => {
  const job = await connected({ maxInFlightBytes: 1 });
  const table = await job.createTable({ name: 't', ...COUNTING });
  const listeners = new Set<() => void>();
  const own = {
    aborted: false,
    addEventListener: (_: string, listener: () => void) => listeners.add(listener),
    removeEventListener: (_: string, listener: () => void) => listeners.delete(listener),
  };
  const signal = own as unknown as AbortSignal;
  const ends = many(() => rejection(table.push(keysOf(5), Float32Array.of(1, 1), { signal })));
  await begun(job);
  own.aborted = true;
  for (const listener of [...listeners]) listener();
  expect(new Set((await Promise.all(ends)).map(({ code }) => code))).toEqual(new Set(['ABORTED']));
  expect(listeners.size).toBe(0);
});

it('clients connect with it without a warning', async () => {
  const { address } = await cluster({ code: '1+1' });
  const { signal } = new AbortController();
  const clients = await Promise.all(many(() => connect(address, { signal })));
  await Promise.all(clients.map((client) => client.close()));
  expect(await warned()).toEqual([]);
});
