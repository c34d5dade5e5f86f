// Callers change their arrays and tables while a call is under way, or before it.

import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { connect } from '../../../src/library/client/client.js';
import { importRows } from '../../../src/library/tools/import.js';
import type { ClusterMap } from '../../../src/protocol/map.js';
import { startReplica } from '../../../src/roles/replica/replica.js';
import {
  COUNTING,
  client,
  cluster,
  connected,
  firstKeys,
  keysOf,
  rejection,
  silent,
} from '../../roles/support.js';

const WIDE = { ...COUNTING, name: 'wide', dim: 4096 };

it('deletes the keys that were given, however they change afterwards', async () => {
  const job = await client((await cluster({ code: '2+1', ps: 3 })).address);
  const table = await job.createTable(WIDE);
  const keys = firstKeys(2500);
  await table.push(keys, new Float32Array(2500 * WIDE.dim));
  // Rows of more than 16 MiB are deleted in several rounds.
  const given = keys.slice(0, 2000);
  const deleted = table.delete(given);
  given.fill(keys[2400]!);
  await deleted;
  const left = new Set<bigint>();
  for await (const batch of table.scan()) for (const key of batch.keys) left.add(key);
  expect(left.size).toBe(500);
  expect(left.has(keys[2400]!)).toBe(true);
});

it('reads the keys that were given from replicas and owners, however they change afterwards', async () => {
  const running = await cluster({ code: '2+1', ps: 3 });
  const writer = await client(running.address);
  const table = await writer.createTable({ ...COUNTING, name: 'items' });
  const keys = firstKeys(64);
  await table.push(keys, new Float32Array(128).fill(6));
  const replica = await startReplica({
    ...{ scheduler: running.address, name: 'half', log: silent, share: [1, 2] },
  });
  const reader = await client(running.address, { replica: { owners: true } });
  for (let round = 0; round < 3; round++) {
    const given = keys.slice();
    const rows = reader.table('items').pull(given);
    given.fill(1n << 40n);
    expect(new Set(await rows)).toEqual(new Set([6]));
  }
  await replica.close();
});

it('refuses arrays that were transferred before the call', async () => {
  const job = await client((await cluster({ code: '2+1', ps: 3 })).address);
  const table = await job.createTable({ ...COUNTING, name: 'items' });
  const [keys, gradients] = [firstKeys(2), new Float32Array(4).fill(1)];
  structuredClone(0, { transfer: [keys.buffer as ArrayBuffer, gradients.buffer as ArrayBuffer] });
  for (const call of [table.push(keys, gradients), table.pull(keys), table.delete(keys)])
    expect(await rejection(call)).toMatchObject({
      ...{ code: 'BAD_ARGUMENT', message: 'keys were detached (transferred) before the call' },
    });
  expect(await rejection(table.push(firstKeys(2), gradients))).toMatchObject({
    ...{ code: 'BAD_ARGUMENT', message: 'gradients were detached (transferred) before the call' },
  });
  await table.push(new BigUint64Array(0), new Float32Array(0));
  expect(await table.pull(new BigUint64Array(0))).toEqual(new Float32Array(0));
});

it('a reader of replicas that asks owners has no value of its own for keys without a row', async () => {
  const { address } = await cluster({ code: '2+1', ps: 3 });
  const error = await rejection(connect(address, { replica: { owners: true, missing: -7 } }));
  expect(error).toMatchObject({ code: 'BAD_ARGUMENT', message: expect.stringContaining('owners: false') });
});

it('settings of a table that is dropped meanwhile are not those of another with its name', async () => {
  const { address } = await cluster({ code: '2+1', ps: 3 });
  const [one, other] = [await client(address), await client(address)];
  const held = await one.createTable({ ...COUNTING, name: 'items' });
  const again = Promise.all([
    other.table('items').drop(),
    other.createTable({ ...COUNTING, name: 'items', seed: 2 }),
  ]);
  const error = await rejection(held.set({ lr: 7 }));
  await again;
  expect(error).toMatchObject({ code: 'UNKNOWN_TABLE', message: expect.stringContaining('was dropped') });
  expect(other.table('items').spec.optimizer).toEqual(COUNTING.optimizer);
});

it('an import does not go on into another table that has the name', async () => {
  const { address } = await cluster({ code: '2+1', ps: 3 });
  const [one, other] = [await client(address), await client(address)];
  await one.createTable({ ...COUNTING, name: 'items', dim: 64 });
  const file = join(await mkdtemp(join(tmpdir(), 'kintsugi-')), 'rows.csv');
  const line = (key: number | string) => [key, ...Array.from({ length: 64 }, (_, i) => i)].join(',');
  const lines = ['key', ...Array(40_000).keys()].map(line);
  await writeFile(file, `${lines.join('\n')}\n`);
  let again: Promise<unknown> | undefined;
  const onProgress = () => {
    again ??= Promise.all([
      other.table('items').drop(),
      other.createTable({ ...COUNTING, name: 'items', dim: 64, seed: 9 }),
    ]);
  };
  const error = await rejection(importRows(one, [file], { table: 'items', onProgress }));
  expect(error).toMatchObject({ code: 'UNKNOWN_TABLE' });
  await again;
  let rows = 0;
  for await (const { keys } of other.table('items').scan()) rows += keys.length;
  expect(rows).toBe(0);
});

it('specifications that a client gives out cannot be changed', async () => {
  const job = await client((await cluster({ code: '2+1', ps: 3 })).address);
  const table = await job.createTable({ ...COUNTING, name: 'items' });
  for (const spec of [job.tables()[0]!, table.spec]) {
    expect(() => {
      spec.name = 'others';
    }).toThrow(TypeError);
    expect(() => {
      (spec.optimizer as { lr: number }).lr = 0.5;
    }).toThrow(TypeError);
  }
  expect(job.table('items').spec.optimizer).toEqual(COUNTING.optimizer);
});

it('shows a map that nobody can change', async () => {
  const job = await client((await cluster({ code: '1+1' })).address);
  await job.createTable({ name: 'b', ...COUNTING });
  const map = job.clusterMap;
  expect(job.clusterMap).toBe(map);
  const { tables, groups } = map as ClusterMap;
  for (const change of [() => tables.push(tables[0]!), () => groups.pop(), () => groups[0]!.data.pop()])
    expect(change).toThrow(TypeError);
  const next = await job.createTable({ name: 'a', ...COUNTING });
  expect(job.clusterMap.tables.map(({ name }) => name)).toEqual(['b', 'a']);
  expect(job.clusterMap.tables[0]).toBe(tables[0]);
  expect(tables).toHaveLength(1);
  expect(await next.pull(keysOf(1))).toHaveLength(COUNTING.dim);
});

it('refuses one memory for two requests, and any request after its end', async () => {
  const job = await connected();
  await job.createTables(['a', 'b'].map((name) => ({ name, ...COUNTING })));
  const all = new Float32Array(8);
  const into = (table: string, from: number) => ({
    table,
    keys: keysOf(1),
    into: all.subarray(from, from + 2),
  });
  for (const [one, two] of [
    [0, 0],
    [1, 0],
    [3, 4],
  ]) {
    const error = await rejection(job.pull([into('a', one!), into('b', 6), into('b', two!)]));
    expect(error).toMatchObject({ code: 'BAD_ARGUMENT', message: expect.stringContaining('into') });
  }
  await job.pull([into('a', 2), into('b', 0), into('b', 4)]);
  const none = { table: 'a', keys: keysOf(), into: all.subarray(2, 2) };
  await job.pull([none, into('b', 2), none]);
  await job.close();
  const nothing = { table: 'a', keys: keysOf(), gradients: new Float32Array(0) };
  const works = [
    () => job.pull([{ table: 'a', keys: keysOf() }]),
    () => job.pullFull([]),
    () => job.push([nothing]),
    () => job.assign([]),
    () => job.delete([{ table: 'a', keys: keysOf() }]),
  ];
  for (const work of works) expect((await rejection(work())).code).toBe('CLOSED');
});
