/** Saving a job through a client, and loading what was saved into a running job. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Client } from '../../../src/library/client/client.js';
import { digest } from '../../../src/library/tools/digest.js';
import { load } from '../../../src/library/tools/load.js';
import { save, saveTo } from '../../../src/library/tools/save.js';
import type { Manifest, SegmentRef } from '../../../src/protocol/checkpoints.js';
import { readManifest, readSegment } from '../../../src/stores/checkpoint/checkpoints.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { ENDPOINT, makeBucket } from '../../stores/checkpoint/s3-server.js';
import { fill, keysOf, redundancy, startJob, TABLES, temporaryDirectory } from './support.js';

async function saved(rows = 300): Promise<{ client: Client; directory: string }> {
  const { client } = await startJob({ ps: 3, code: '2+1' }, { audit: true });
  await fill(client, rows);
  const directory = join(temporaryDirectory(), 'job');
  await save(client, directory);
  return { client, directory };
}

const manifestOf = (directory: string) => readManifest(new DirectoryPlace(directory));
const filesOf = ({ shards }: Manifest) => shards.flatMap(({ segments }) => segments);
const stored = (directory: string) =>
  !existsSync(directory)
    ? []
    : readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter((name) =>
        /\.(safetensors|json)$/.test(name),
      );

describe('save and load', () => {
  test.each([
    { ps: 4, code: '3+1' },
    { ps: 2, code: '1+1', groups: 3 },
    { ps: 1, code: 'none' },
  ])('the digest is the same in a job of $ps nodes and code $code', async (options) => {
    const { client, directory } = await saved();
    const other = (await startJob(options)).client;
    expect(await load(other, directory)).toEqual({ tables: TABLES, rows: TABLES * 300, lost: 0 });
    expect(await digest(other)).toEqual(await digest(client));
    expect(other.tables().map(({ id: _, ...spec }) => spec)).toEqual(
      expect.arrayContaining(client.tables().map(({ id: _, ...spec }) => spec)),
    );
  });

  test('when shards are beyond repair a partial save has all others', async () => {
    const { cluster, client } = await startJob({ ps: 3, code: '2+1' });
    await fill(client);
    const reported = async () => (await client.status()).nodes.every((node) => node.rows > 0);
    while (!(await reported()));
    await Promise.all([cluster.kill(0), cluster.kill(1)]);
    const folder = temporaryDirectory();
    await expect(save(client, join(folder, 'whole'))).rejects.toMatchObject({ code: 'UNRECOVERABLE' });
    expect(stored(join(folder, 'whole'))).toEqual([]);
    const { rows, lost } = await save(client, join(folder, 'partial'), { partial: true });
    expect(lost).toBeGreaterThan(0);
    expect(rows).toBeGreaterThan(0);
    expect(rows).toBeLessThan(TABLES * 300);
    expect((await manifestOf(join(folder, 'partial'))).lost).toHaveLength(lost);
    const other = (await startJob({ ps: 2, code: '1+1' })).client;
    expect((await load(other, join(folder, 'partial'))).rows).toBe(rows);
    const { unrecoverable, reasons } = await client.status();
    expect(unrecoverable.some((shard) => shard.rows > 0)).toBe(true);
    expect(reasons.join()).toMatch(/shard \d \(\d+ rows\) is beyond repair/);
  });

  test('a loaded job goes on as the saved one does', async () => {
    const { client, directory } = await saved();
    const other = (await startJob({ ps: 2, code: '1+1' })).client;
    await load(other, directory);
    for (const one of [client, other]) {
      await one.push([{ table: 't/adam', keys: keysOf(400), gradients: new Float32Array(2800).fill(0.5) }]);
    }
    expect(await digest(other)).toEqual(await digest(client));
  });

  test('is protected when it returns: the loss of a node right after it changes nothing', async () => {
    const { client, directory } = await saved();
    const { cluster, client: other } = await startJob({ ps: 3, code: '2+1' });
    await load(other, directory);
    await cluster.kill(0);
    await cluster.restart(0);
    await redundancy(other, 'full');
    expect(await digest(other)).toEqual(await digest(client));
  });

  test('several batches per file, progress and results add up', async () => {
    const { client } = await startJob({ ps: 2, code: '1+1', groups: 1 });
    const wide = { name: 'wide', dim: 4096, optimizer: { kind: 'sgd', lr: 1 } as const };
    await client.createTable(wide);
    const keys = keysOf(600);
    const gradients = Float32Array.from({ length: 600 * 4096 }, (_, i) => i % 251);
    await client.push([{ table: 'wide', keys, gradients }]);
    const directory = join(temporaryDirectory(), 'new', 'job');
    const seen: number[] = [];
    const result = await save(client, directory, { onProgress: ({ rows }) => seen.push(rows) });
    expect(result).toMatchObject({ tables: 1, rows: 600 });
    expect(result.bytes).toBeGreaterThan(600 * (8 + 4096 * 4));
    expect(seen.length).toBeGreaterThan(2);
    expect(seen.at(-1)).toBe(600);
    const other = (await startJob({ ps: 1, code: 'none' })).client;
    const loaded: number[] = [];
    await load(other, directory, { onProgress: ({ rows }) => loaded.push(rows) });
    expect(loaded.at(-1)).toBe(600);
    expect(await digest(other)).toEqual(await digest(client));
  });

  test('a shard has as many files as its rows need', async () => {
    const { client } = await startJob({ ps: 3, code: '2+1', groups: 1 });
    await fill(client);
    const directory = join(temporaryDirectory(), 'job');
    const { files, rows } = await saveTo(new DirectoryPlace(directory), client, {}, 4000);
    const { shards } = await manifestOf(directory);
    expect(shards.some(({ segments }) => segments.length > 2)).toBe(true);
    expect(rows).toBe(TABLES * 300);
    expect(stored(directory)).toHaveLength(files + 1);
    const other = (await startJob({ ps: 2, code: '1+1' })).client;
    expect(await load(other, directory)).toEqual({ tables: TABLES, rows: TABLES * 300, lost: 0 });
    expect(await digest(other)).toEqual(await digest(client));
  });

  test('an empty job and empty tables', async () => {
    const { client } = await startJob({ ps: 2, code: '1+1' });
    await client.createTable({ name: '../odd name/ü', dim: 3 });
    const directory = join(temporaryDirectory(), 'job');
    expect(await save(client, directory)).toMatchObject({ tables: 1, rows: 0, lost: 0 });
    const other = (await startJob({ ps: 1, code: 'none' })).client;
    await load(other, directory);
    expect(await digest(other)).toEqual(await digest(client));
  });
});

describe('the place', () => {
  test('is refused when it is not empty, taken when it is', async () => {
    const { client } = await startJob({ ps: 1, code: 'none' });
    await fill(client, 30);
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'mine.txt'), 'x');
    await expect(save(client, directory)).rejects.toMatchObject({
      code: 'BAD_ARGUMENT',
      message: expect.stringContaining('mine.txt'),
    });
    for (const file of ['mine.txt', 'mine.txt/x'])
      await expect(save(client, join(directory, file))).rejects.toMatchObject({ code: 'PLACE_FAILED' });
    expect(readdirSync(directory)).toEqual(['mine.txt']);
    const empty = join(directory, 'empty');
    mkdirSync(empty);
    await save(client, empty);
    expect((await verifyCheckpoint(new DirectoryPlace(empty))).bad).toEqual([]);
    await expect(save(client, empty)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  });

  test('is empty when the save fails', async () => {
    const { client } = await startJob({ ps: 1, code: 'none' });
    await fill(client, 30);
    const directory = temporaryDirectory();
    const abort = new AbortController();
    const onProgress = () => abort.abort();
    const saving = save(client, directory, { onProgress, signal: abort.signal });
    await expect(saving).rejects.toMatchObject({ code: 'ABORTED' });
    expect(stored(directory)).toEqual([]);
    await expect(load(client, directory)).rejects.toMatchObject({ code: 'CHECKPOINT_MISSING' });
  });

  test("files of a save that was killed are in nobody's way, and go", async () => {
    const { client, directory } = await saved(30);
    const files = filesOf(await manifestOf(directory)).map(({ name }) => name);
    rmSync(join(directory, '000001', 'manifest.json'));
    await save(client, directory);
    const names = stored(directory);
    expect(names.filter((name) => files.includes(name))).toEqual([]);
    expect(names).toHaveLength(files.length + 1);
    const other = (await startJob({ ps: 1, code: 'none' })).client;
    await load(other, directory);
    expect(await digest(other)).toEqual(await digest(client));
  });

  test('of two saves at once has one', async () => {
    const { client, directory } = await saved(30);
    rmSync(join(directory, '000001', 'manifest.json'));
    const both = await Promise.allSettled([save(client, directory), save(client, directory)]);
    const failed = both.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []));
    expect(failed).toMatchObject([{ code: 'CHECKPOINT_TAKEN' }]);
    expect((await verifyCheckpoint(new DirectoryPlace(directory))).bad).toEqual([]);
    const files = filesOf(await manifestOf(directory));
    expect(stored(directory)).toHaveLength(files.length + 1);
  });

  test('has every shard, and no audit table', async () => {
    const { client, directory } = await saved();
    const manifest = await manifestOf(directory);
    expect(manifest.tables.map((table) => table.name)).toEqual(
      client
        .tables()
        .map((table) => table.name)
        .sort(),
    );
    const files = filesOf(manifest).map(({ name }) => name);
    expect(stored(directory).sort()).toEqual([...files, '000001/manifest.json'].sort());
    const { job, pools } = client.clusterMap;
    expect(manifest).toMatchObject({ job, pools, kind: 'full job', number: 1, barrier: false, parents: [] });
  });

  test('of version 0.1 is refused, and named', async () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'manifest.json'), '{"format": "kintsugi-checkpoint", "version": 1}');
    writeFileSync(join(directory, '000-t-0.safetensors'), 'x');
    const { client } = await startJob({ ps: 1, code: 'none' });
    await expect(load(client, directory)).rejects.toMatchObject({
      code: 'BAD_CHECKPOINT',
      message: expect.stringContaining('saved by version 0.1'),
    });
    await expect(save(client, directory)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  });
});

describe('damage is refused with the name of the file, and nothing is loaded', () => {
  let target: Client | undefined;

  async function refused(directory: string, name: string): Promise<void> {
    target ??= (await startJob({ ps: 1, code: 'none' })).client;
    onTestFinished(() => {
      target = undefined;
    });
    await expect(load(target, directory)).rejects.toMatchObject({
      code: 'BAD_CHECKPOINT',
      message: expect.stringContaining(name),
    });
    expect(target.tables()).toEqual([]);
  }

  test('truncated, longer, missing, or with one bit flipped anywhere', async () => {
    const { directory } = await saved();
    const { name } = filesOf(await manifestOf(directory)).at(-1)!;
    const path = join(directory, name);
    const whole = readFileSync(path);
    for (const at of [2, 9, Math.floor(whole.length / 2), whole.length - 1]) {
      const flipped = Buffer.from(whole);
      flipped[at]! ^= 1 << (at % 8);
      writeFileSync(path, flipped);
      await refused(directory, name);
    }
    for (const bytes of [whole.subarray(0, -1), whole.subarray(0, 4), Buffer.concat([whole, Buffer.of(0)])]) {
      writeFileSync(path, bytes);
      await refused(directory, name);
    }
    rmSync(path);
    await refused(directory, name);
    writeFileSync(path, whole);
    await load(target!, directory);
  });

  test('two files exchanged', async () => {
    const { directory } = await saved();
    const [a, b] = filesOf(await manifestOf(directory)) as [SegmentRef, SegmentRef, ...SegmentRef[]];
    const first = readFileSync(join(directory, a.name));
    writeFileSync(join(directory, a.name), readFileSync(join(directory, b.name)));
    writeFileSync(join(directory, b.name), first);
    await refused(directory, a.name);
  });

  test('a manifest that is truncated or altered', async () => {
    const { directory } = await saved();
    const path = join(directory, '000001', 'manifest.json');
    const text = readFileSync(path, 'utf8');
    for (const edited of [text.slice(0, -10), text.replace('"lr":0.1', '"lr":0.2'), 'null', '[]']) {
      expect(edited).not.toBe(text);
      writeFileSync(path, edited);
      await refused(directory, 'manifest.json');
    }
  });
});

test.skipIf(!ENDPOINT)('an object store', async () => {
  const { client, directory } = await saved();
  const url = `s3://${await makeBucket()}/saves/1`;
  vi.stubEnv('KINTSUGI_S3_ENDPOINT', ENDPOINT);
  vi.stubEnv('AWS_REGION', 'us-east-1');
  onTestFinished(() => void vi.unstubAllEnvs());
  const { shards } = await manifestOf(directory);
  expect(await save(client, url)).toMatchObject({ rows: TABLES * 300, files: shards.length });
  await expect(save(client, url)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  const other = (await startJob({ ps: 2, code: '1+1' })).client;
  expect(await load(other, url)).toEqual({ tables: TABLES, rows: TABLES * 300, lost: 0 });
  expect(await digest(other)).toEqual(await digest(client));
});

describe('the job that it is loaded into', () => {
  test('must not have rows in these tables', async () => {
    const { client, directory } = await saved();
    const other = (await startJob({ ps: 1, code: 'none' })).client;
    await load(other, directory);
    await expect(load(other, directory)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(await digest(other)).toEqual(await digest(client));
  });

  test('must not have such a table with another specification', async () => {
    const { directory } = await saved();
    const other = (await startJob({ ps: 1, code: 'none' })).client;
    await other.createTable({ name: 't/adam', dim: 9 });
    await expect(load(other, directory)).rejects.toMatchObject({ code: 'TABLE_EXISTS' });
  });
});

test('values and state of a file are those that the job has', async () => {
  const { client, directory } = await saved(60);
  const place = new DirectoryPlace(directory);
  let rows = 0;
  for (const ref of filesOf(await readManifest(place))) {
    for (const { name, dim, keys, values, state } of (await readSegment(place, ref)).tables) {
      const [whole] = await client.pullFull([{ table: name, keys }]);
      const width = whole!.length / keys.length;
      const read = [...keys].flatMap((_, i) => [
        ...values.subarray(i * dim, (i + 1) * dim),
        ...state.subarray(i * (width - dim), (i + 1) * (width - dim)),
      ]);
      expect(read).toEqual([...whole!]);
      rows += keys.length;
    }
  }
  expect(rows).toBe(TABLES * 60);
});
