/** `importRows` and `kintsugi import`: rows of a job become those of files, through the loss of a PS. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { keyOf } from '../../../src/data/keys.js';
import { parseSchema } from '../../../src/data/parse-schema.js';
import { optimizerOf } from '../../../src/engine/optimizers.js';
import type { Client } from '../../../src/library/client/client.js';
import { importRows } from '../../../src/library/tools/import.js';
import { scrub } from '../../../src/library/tools/scrub.js';
import { initialState } from '../../../src/stores/checkpoint/layout.js';
import { kintsugi } from '../../cli/support.js';
import { VECTOR_FORMATS, type Vectors, vectors, writeVectors } from '../../data/vectors.js';
import { redundancy, startJob, temporaryDirectory } from './support.js';

const DIM = 4;
const OPTIMIZER = { ...optimizerOf('adagrad', 0.1), initialAccumulator: 0.25 };
const FRESH = [...initialState(DIM, OPTIMIZER)];

/** Whole rows of these keys. */
async function rowsOf(client: Client, keys: Vectors['keys'], table = 'items'): Promise<number[][]> {
  const all = BigUint64Array.from(keys, BigInt);
  const [rows] = await client.pullFull([{ table, keys: all }]);
  const width = rows!.length / all.length;
  return Array.from(all, (_, row) => [...rows!.subarray(row * width, (row + 1) * width)]);
}

const whole = ({ rows }: Vectors) => rows.map((row) => [...row, ...FRESH]);

test('every format sets the same rows, which begin like new ones; others stay', async () => {
  const { client } = await startJob({ ps: 3, code: '2+1' });
  await client.createTable({ name: 'items', dim: DIM, optimizer: OPTIMIZER });
  const directory = temporaryDirectory();
  const others = [1_000_001, 1_000_002];
  const keys = BigUint64Array.from([...others, 0, 2, 4].map(BigInt));
  for (const [index, name] of VECTOR_FORMATS.entries()) {
    await client.push([{ table: 'items', keys, gradients: new Float32Array(5 * DIM).fill(1) }]);
    const before = await rowsOf(client, others);
    // Other values each time.
    const all = vectors(150, DIM, (row) => row * 2);
    const moved = { ...all, rows: all.rows.map((row) => row.map((value) => value + index)) };
    const { file, keys: named } = writeVectors(directory, name, moved);
    expect(await importRows(client, [file], { table: 'items', keys: named })).toEqual({
      files: 1,
      rows: 150,
    });
    expect(await rowsOf(client, all.keys)).toEqual(whole(moved));
    expect(await rowsOf(client, others)).toEqual(before);
  }
});

test('a PS is lost meanwhile; parities are right, and the same import again changes nothing', async () => {
  const dim = 16;
  const { client, cluster } = await startJob({ ps: 4, code: '2+1' });
  await client.createTable({ name: 'items', dim, optimizer: OPTIMIZER });
  const directory = temporaryDirectory();
  // More batches than are under way at once.
  const count = 60_000;
  const all = vectors(count, dim, (row) => row * 3);
  const expected = Float32Array.from(all.rows.flatMap((row) => [...row, ...initialState(dim, OPTIMIZER)]));
  const holds = async () => {
    const [rows] = await client.pullFull([{ table: 'items', keys: BigUint64Array.from(all.keys, BigInt) }]);
    return Buffer.compare(Buffer.from(rows!.buffer), Buffer.from(expected.buffer)) === 0;
  };
  const { file, keys } = writeVectors(directory, 'a.safetensors', all);
  let killed: { before: number; done: Promise<void> } | undefined;
  const onProgress = ({ rows }: { rows: number }) => {
    killed ??= { before: rows, done: cluster.kill(1) };
  };
  const result = await importRows(client, [file], { table: 'items', keys, onProgress });
  expect(result).toEqual({ files: 1, rows: count });
  expect(killed!.before).toBeLessThan(count / 2);
  await killed!.done;
  await redundancy(client, 'full');
  expect(await holds()).toBe(true);
  expect((await scrub(client)).wrong).toEqual([]);
  await importRows(client, [file], { table: 'items', keys });
  expect(await holds()).toBe(true);
}, 120_000);

test('of a key that is there more than once the last row counts, within batches and beyond', async () => {
  const { client } = await startJob({ ps: 2, code: '1+1' });
  await client.createTable({ name: 'items', dim: DIM, optimizer: OPTIMIZER });
  const directory = temporaryDirectory();
  const all = vectors(70_000, DIM, (row) => row % 30_000);
  const { file } = writeVectors(directory, 'a.csv', all);
  expect((await importRows(client, [file], { table: 'items' })).rows).toBe(70_000);
  const last = new Map(all.keys.map((key, row) => [key, all.rows[row]!]));
  expect(await rowsOf(client, [...last.keys()])).toEqual(whole({ keys: [], rows: [...last.values()] }));
});

test('what is wrong is said with what was set before it; the corrected file is imported again', async () => {
  const { client } = await startJob({ ps: 2, code: '1+1' });
  await client.createTable({ name: 'items', dim: DIM, optimizer: OPTIMIZER });
  const directory = temporaryDirectory();
  const all = vectors(200, DIM);
  const first = writeVectors(directory, 'a.csv', all).file;
  const second = join(directory, 'b.csv');
  writeFileSync(second, 'key,a,b,c,d\n1,2,3,4,5\n2,x,3,4,5\n');
  await expect(importRows(client, [first, second], { table: 'items' })).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: expect.stringMatching(/b\.csv:3: value 1 must be .* \(200 rows before it are set; /),
  });
  writeFileSync(second, 'key,a,b,c,d\n1,2,3,4,5\n2,1,3,4,5\n');
  expect(await importRows(client, [first, second], { table: 'items' })).toEqual({ files: 2, rows: 202 });
  expect(await rowsOf(client, [1, 2, 3])).toEqual(
    [[2, 3, 4, 5], [1, 3, 4, 5], all.rows[3]!].map((row) => [...row, ...FRESH]),
  );
  await expect(importRows(client, [first], { table: 'nothing' })).rejects.toMatchObject({
    code: 'UNKNOWN_TABLE',
  });
  await expect(importRows(client, [join(directory, 'c.csv')], { table: 'items' })).rejects.toMatchObject({
    code: 'BAD_DATA',
  });
});

test('kintsugi import: a table that a worker would make, with the keys of a column of a schema', async () => {
  const { client, cluster } = await startJob({ ps: 2, code: '1+1' });
  const directory = temporaryDirectory();
  const written = {
    label: 'y',
    sparse: ['city', { column: 'item', key: 'integer', table: 'items' }],
    tables: { items: { optimizer: { kind: 'sgd', lr: 0.1 } } },
  };
  const schema = join(directory, 'schema.json');
  writeFileSync(schema, JSON.stringify(written));
  const run = (...args: string[]) => kintsugi(['import', ...args, '--scheduler', cluster.address]);
  const cities = vectors(3, DIM, (row) => ['Paris', 'Rome', 'São Paulo'][row]!);
  const { file } = writeVectors(directory, 'a.csv', cities);
  const column = ['--schema', schema, '--column', 'city'];
  const made = await run(file, ...column, '--create', '--dim', String(DIM), '--lr', '0.2');
  expect(made).toMatchObject({ code: 0, stdout: 'imported 3 rows into the table "embedding"\n' });
  const [city] = parseSchema(written, schema).sparse;
  const keys = cities.keys.map((key) => keyOf(city!, key));
  expect((await rowsOf(client, keys, 'embedding')).map((row) => row.slice(0, DIM))).toEqual(cities.rows);
  // As a worker of the same flags says it.
  await client.createTable({ name: 'embedding', dim: DIM, optimizer: optimizerOf('adagrad', 0.2), seed: 1 });
  const items = writeVectors(directory, 'a.npy', vectors(3, DIM)).file;
  const create = ['--create', '--dim', String(DIM)];
  expect((await run(items, '--schema', schema, '--column', 'item', ...create)).code).toBe(0);
  expect(client.table('items').spec.optimizer).toEqual(optimizerOf('sgd', 0.1));
  expect(await rowsOf(client, [0, 1, 2], 'items')).toEqual(vectors(3, DIM).rows);
}, 180_000);

test('kintsugi import: what is asked for must fit together', async () => {
  const schema = join(temporaryDirectory(), 'schema.json');
  writeFileSync(schema, JSON.stringify({ label: 'y', sparse: ['city', 'item'] }));
  const all = [
    [['--column', 'city'], /import needs --table, or --schema and --column/],
    [['--schema', schema, '--column', 'town'], /--column must be one of city, item, not "town"/],
    [['--schema', schema, '--column', 'city', '--table', 'items'], /leave --table and --key out/],
  ] as const;
  await Promise.all(
    all.map(async ([args, message]) => {
      const { code, stderr } = await kintsugi(['import', 'a.npy', ...args]);
      expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
    }),
  );
}, 180_000);
