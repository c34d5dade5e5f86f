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
import { npy, safetensors, VECTOR_FORMATS, type Vectors, vectors, writeVectors } from '../../data/vectors.js';
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

test('files with other orders of columns set no rows until the columns are named', async () => {
  const { client } = await startJob({ ps: 3, code: '2+1' });
  await client.createTable({ name: 'items', dim: 2, optimizer: OPTIMIZER });
  const directory = temporaryDirectory();
  const write = (name: string, text: string) => {
    writeFileSync(join(directory, name), text);
    return join(directory, name);
  };
  const one = write('one.csv', 'key,a,b\n1,10,20\n');
  const other = write('other.csv', 'b,key,a\n40,2,30\n');
  await expect(importRows(client, [one, other], { table: 'items' })).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: expect.stringMatching(/other\.csv:1: has the values b, a, and .*one\.csv:1 has a, b: --values/),
  });
  await importRows(client, [one, other], { table: 'items', values: 'a,b' });
  expect([...(await client.table('items').pull(BigUint64Array.of(1n, 2n)))]).toEqual([10, 20, 30, 40]);
  // A list has its own order.
  const lists = [write('x.csv', 'key,vector\n3,1|2\n'), write('y.csv', 'v,key\n3|4,4\n')];
  await importRows(client, lists, { table: 'items' });
  expect([...(await client.table('items').pull(BigUint64Array.of(3n, 4n)))]).toEqual([1, 2, 3, 4]);
  const twice = importRows(client, [one], { table: 'items', values: 'a,a' });
  await expect(twice).rejects.toMatchObject({ code: 'BAD_DATA' });
});

test('arrays of several files are numbered as one, and one file of keys goes on over them', async () => {
  const { client } = await startJob({ ps: 2, code: '1+1' });
  const directory = temporaryDirectory();
  const all = vectors(25, DIM, (row) => 100 + row * 3);
  const part = (from: number, to: number) => all.rows.slice(from, to);
  const tensor = (rows: readonly (readonly number[])[]) => {
    return { name: 'w', dtype: 'F32' as const, shape: [rows.length, DIM], values: rows.flat() };
  };
  const write = (name: string, content: Buffer): string => {
    const file = join(directory, name);
    writeFileSync(file, content);
    return file;
  };
  const files = [
    write('p0.npy', npy(tensor(part(0, 10)))),
    write('p1.npy', npy(tensor(part(10, 12)))),
    write('p2.npy', npy(tensor(part(12, 25)))),
  ];
  const rows = async (table: string, keys: Vectors['keys']) => {
    const found = await rowsOf(client, keys, table);
    return found.map((row) => row.slice(0, DIM));
  };
  const number = all.rows.map((_, row) => row);
  const make = (name: string) => client.createTable({ name, dim: DIM, optimizer: OPTIMIZER });

  await make('numbered');
  expect(await importRows(client, files, { table: 'numbered' })).toEqual({ files: 3, rows: 25 });
  expect(await rows('numbered', number)).toEqual(all.rows);

  // Formats may be mixed, and rows that name their keys take no numbers.
  await make('mixed');
  const named = write('n.csv', Buffer.from(`key,a,b,c,d\n1000,1,2,3,4\n`));
  const shards = [
    write('s0.safetensors', safetensors([tensor(part(0, 10))])),
    named,
    write('s1.safetensors', safetensors([tensor(part(10, 12))])),
    files[2]!,
  ];
  await importRows(client, shards, { table: 'mixed' });
  expect(await rows('mixed', [...number, 1000])).toEqual([...all.rows, [1, 2, 3, 4]]);

  await make('keyed');
  const ids = (keys: readonly number[]) => ({
    name: 'ids',
    dtype: 'I64' as const,
    shape: [keys.length],
    values: keys,
  });
  const keys = all.keys as number[];
  const file = write('keys.npy', npy(ids(keys)));
  await importRows(client, files, { table: 'keyed', keys: file });
  expect(await rows('keyed', keys)).toEqual(all.rows);
  const few = write('few.npy', npy(ids(keys.slice(0, 10))));
  await expect(importRows(client, files, { table: 'keyed', keys: few })).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: `${few}: must have 25 keys, one for each row of all files, not 10`,
  });

  // Tensors of keys belong to the file that they are in.
  await make('own');
  const own = [
    write('k0.safetensors', safetensors([tensor(part(0, 10)), ids(keys.slice(0, 10))])),
    write('k1.safetensors', safetensors([tensor(part(10, 25)), ids(keys.slice(10))])),
  ];
  await importRows(client, own, { table: 'own', keys: 'ids' });
  expect(await rows('own', keys)).toEqual(all.rows);
});

test('integers of arrays are hashes as they are, and text has hexadecimal digits', async () => {
  const { client } = await startJob({ ps: 2, code: '1+1' });
  const directory = temporaryDirectory();
  const all = { ...vectors(3, DIM), keys: [12, 10, 255] };
  const text = { ...all, keys: ['c', 'a', 'FF'] };
  for (const [name, written] of [
    ['a.npy', all],
    ['a.safetensors', all],
    ['a.parquet', all],
    ['a.csv', text],
    ['a.parquet', text],
  ] as const) {
    const table = `${name}-${written.keys[0]}`;
    await client.createTable({ name: table, dim: DIM, optimizer: OPTIMIZER });
    const { file, keys } = writeVectors(directory, name, written);
    await importRows(client, [file], { table, key: 'hash64', keys });
    expect(await rowsOf(client, all.keys, table)).toEqual(whole(all));
  }
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
  const again = (...args: string[]) => run(file, ...column, '--create', ...args);
  expect((await again()).code).toBe(0);
  await client.table('embedding').set({ lr: 0.3 });
  expect((await again('--dim', `${DIM}`, '--lr', '0.2', '--seed', '1', '--optimizer', 'adagrad')).code).toBe(
    0,
  );
  for (const [flag, value, has] of [
    ['--dim', `${DIM + 1}`, `${DIM}, not ${DIM + 1}`],
    ['--lr', '0.1', '0.3, not 0.1'],
    ['--optimizer', 'sgd', 'adagrad, not sgd'],
    ['--seed', '2', '1, not 2'],
    ['--clip-norm', '3', 'none, not 3'],
    ['--lr-schedule', 'cosine,steps=10', 'none, not cosine'],
  ] as const) {
    const { code, stderr } = await again(flag, value);
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining(`${flag}: table "embedding" is there and has ${has}`),
    ]);
    const without = await run(file, ...column, flag, value);
    expect([without.code, without.stderr]).toEqual([
      2,
      expect.stringContaining(`${flag}: only with --create`),
    ]);
  }
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
