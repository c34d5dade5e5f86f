// A misspelled option is refused by name, wherever the library takes options: plain JavaScript has no types.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { checkOptions } from '../../src/common/options.js';
import { connect, startLocalCluster } from '../../src/index.js';
import { load } from '../../src/library/tools/load.js';
import { save } from '../../src/library/tools/save.js';
import { drain, rebalance, scale } from '../../src/library/tools/scaling.js';
import { scrub } from '../../src/library/tools/scrub.js';
import { COUNTING, client, cluster, keysOf, rejection } from './support.js';

/** The error must name what is wrong. */
async function refuses(work: () => Promise<unknown>, name: string): Promise<void> {
  const { code, message } = await rejection((async () => work())());
  expect([code, message]).toEqual(['BAD_ARGUMENT', expect.stringContaining(`"${name}"`)]);
}

it('says which options there are', () => {
  const known = { timeoutMs: true, signal: true } as const;
  expect(() => checkOptions('wait', { timeoutMs: 1, signal: undefined }, known)).not.toThrow();
  expect(() => checkOptions('wait', undefined, known)).not.toThrow();
  expect(() => checkOptions('wait', { timeout: 1 } as object, known)).toThrow(
    'wait has no option "timeout"; it has timeoutMs, signal',
  );
  // Names that every object has are no options.
  expect(() => checkOptions('wait', { constructor: 1 } as object, known)).toThrow(/"constructor"/);
  for (const wrong of [null, 5, 'text', [1]])
    expect(() => checkOptions<object>('wait', wrong as never, known)).toThrow(
      'wait: options must be an object',
    );
});

it('connect', async () => {
  const { address } = await cluster({ code: 'none' });
  // The time limit of a connect is called as the PS and the command line call it.
  await refuses(() => connect(address, { timeoutMs: 1 } as never), 'timeoutMs');
  await client(address, { connectTimeoutMs: 60_000 });
  await refuses(() => connect(address, { tls: { file: 'x' } } as never), 'file');
  await refuses(() => connect(address, { policy: { retry: 1 } } as never), 'retry');
});

it('startLocalCluster', async () => {
  await refuses(() => startLocalCluster({ nodes: 3 } as never), 'nodes');
  await refuses(() => startLocalCluster({ policy: { rate: 1 } } as never), 'rate');
  await refuses(() => startLocalCluster({ schedulerPolicy: { rate: 1 } } as never), 'rate');
});

it.each([
  { ps: '3' },
  { ps: 2.5 },
  { standby: 0.5 },
  { memoryBytes: -1 },
  { code: 5 },
  { groups: 0 },
  { token: 5 },
])('startLocalCluster with %o', async (options) => {
  const started = startLocalCluster(options as never).then((job) => job.close());
  expect((await rejection(started)).code).toBe('BAD_ARGUMENT');
});

it('tables, pulls and pushes', async () => {
  const job = await client((await cluster({ code: 'none' })).address);
  const table = await job.createTable({ name: 't', ...COUNTING });
  const [keys, gradients] = [keysOf(1), new Float32Array(2)];
  await refuses(() => job.createTable({ name: 'u', dims: 2 } as never), 'dims');
  const sgd = { kind: 'sgd', lr: 1, momentum: 0.9 };
  await refuses(() => job.createTable({ name: 'u', dim: 2, optimizer: sgd } as never), 'momentum');
  const uniform = { kind: 'uniform', low: 0, high: 1, mean: 0 };
  await refuses(() => job.createTable({ name: 'u', dim: 2, initializer: uniform } as never), 'mean');
  await refuses(() => table.pull(keys, { timeoutMs: 1 } as never), 'timeoutMs');
  await refuses(() => table.push(keys, gradients, { abort: 1 } as never), 'abort');
  await refuses(() => job.pull([{ table, keys, out: gradients }] as never), 'out');
  await refuses(() => job.pull([{ table, keys }], { abort: 1 } as never), 'abort');
  await refuses(() => job.pullFull([{ table, keys, into: gradients }] as never), 'into');
  await refuses(() => job.push([{ table, keys, gradients, rows: 1 }] as never), 'rows');
  await refuses(() => job.assign([{ table, keys, gradients, rows: 1 }] as never), 'rows');
  await table.push(keys, gradients, { signal: undefined });
  expect(job.pushCounts().reduce((sum, { sent }) => sum + sent, 0)).toBe(1);
});

it('tools', async () => {
  const job = await client((await cluster({ code: '1+1' })).address);
  await refuses(() => scale(job, 2, { timeout: 1 } as never), 'timeout');
  await refuses(() => drain(job, 'ps-0', { timeout: 1 } as never), 'timeout');
  await refuses(() => rebalance(job, { timeout: 1 } as never), 'timeout');
  await refuses(() => scrub(job, { mend: true } as never), 'mend');
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-options-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  await refuses(() => save(job, join(directory, 'a'), { part: true } as never), 'part');
  await refuses(() => load(job, directory, { progress: 1 } as never), 'progress');
  expect((await job.status()).scaling.changes).toEqual([]);
});

it('arguments of a wrong type or range are refused here: a scheduler would hang up on them', async () => {
  const { address, nodes } = await cluster({ code: '1+1' });
  const job = await client(address);
  const wrong: (() => Promise<unknown>)[] = [
    () => scale(job, 1.5),
    () => scale(job, -1),
    () => scale(job, '3' as never),
    () => scale(job, 2, { timeoutMs: 0.5 }),
    () => scale(job, 2, { timeoutMs: Number.NaN }),
    () => rebalance(job, { timeoutMs: -1 }),
    () => drain(job, 5 as never),
    () => nodes[0]!.drain(undefined as never),
    () => nodes[0]!.drain(2 ** 31),
    () => connect(undefined as never),
    () => connect(address, { connectTimeoutMs: Number.NaN }),
    () => connect(address, { connectTimeoutMs: '5' as never }),
    () => connect(address, { connectTimeoutMs: 2 ** 31 }),
    () => connect(address, { maxInFlightBytes: -1 }),
    () => connect(address, { token: 5 as never }),
    () => job.createTables({ name: 't', dim: 1 } as never),
    () => job.createTable(undefined as never),
    () => job.pull({ table: 't', keys: keysOf(1) } as never),
    () => job.pull([undefined as never]),
    () => job.pull([{ keys: keysOf(1) } as never]),
    () => job.push([{ table: 5, keys: keysOf(1), gradients: new Float32Array(1) } as never]),
    () => job.push(undefined as never),
    () => save(job, undefined as never),
    () => load(job, undefined as never),
  ];
  const codes = await Promise.all(
    wrong.map(async (work) => {
      const refused = rejection(work()).catch((error: unknown) => ({ code: String(error) }));
      return [String(work), (await refused).code];
    }),
  );
  expect(codes).toEqual(codes.map(([work]) => [work, 'BAD_ARGUMENT']));
  // The connection to the scheduler is the same as before.
  expect((await job.status()).scaling.changes).toEqual([]);
});
