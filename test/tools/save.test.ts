import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Client } from '../../src/client/client.js';
import { digest } from '../../src/tools/digest.js';
import { load, verify } from '../../src/tools/load.js';
import { encodeManifest, type Manifest, readManifest } from '../../src/tools/manifest.js';
import { save } from '../../src/tools/save.js';
import { fill, keysOf, redundancy, startJob, temporaryDirectory } from './support.js';

async function saved(rows = 300): Promise<{ client: Client; directory: string }> {
  const { client } = await startJob({ ps: 3, code: '2+1' }, { audit: true });
  await fill(client, rows);
  const directory = join(temporaryDirectory(), 'job');
  await save(client, directory);
  return { client, directory };
}

const dataFiles = (directory: string) =>
  readdirSync(directory).filter((name) => name.endsWith('.safetensors'));

describe('save and load', () => {
  test.each([
    { ps: 4, code: '3+1' },
    { ps: 2, code: '1+1', groups: 3 },
    { ps: 1, code: 'none' },
  ])('the digest is the same in a job of $ps nodes and code $code', async (options) => {
    const { client, directory } = await saved();
    const other = (await startJob(options)).client;
    expect(await load(other, directory)).toEqual({ tables: 6, rows: 1800 });
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
    const { rows, lost } = await save(client, join(folder, 'partial'), { partial: true });
    expect(lost).toBeGreaterThan(0);
    expect(rows).toBeGreaterThan(0);
    expect(rows).toBeLessThan(1800);
    expect((await readManifest(join(folder, 'partial'))).lost).toHaveLength(lost);
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
    expect(result).toMatchObject({ tables: 1, rows: 600, files: 1 });
    expect(result.bytes).toBeGreaterThan(600 * (8 + 4096 * 4));
    expect(seen.length).toBeGreaterThan(2);
    expect(seen.at(-1)).toBe(600);
    const other = (await startJob({ ps: 1, code: 'none' })).client;
    const loaded: number[] = [];
    await load(other, directory, { onProgress: ({ rows }) => loaded.push(rows) });
    expect(loaded.at(-1)).toBe(600);
    expect(await digest(other)).toEqual(await digest(client));
  });

  test('a shard with more rows than a file may have has several files', async () => {
    const { client } = await startJob({ ps: 3, code: '2+1', groups: 1 });
    await fill(client);
    const directory = join(temporaryDirectory(), 'job');
    const { files, rows } = await save(client, directory, { rowsPerFile: 40 });
    const manifest = await readManifest(directory);
    expect(manifest.files.every((file) => file.rows > 0 && file.rows <= 40)).toBe(true);
    const places = manifest.files.map((file) => `${file.table} ${file.shard}`);
    expect(new Set(places).size).toBeLessThan(places.length);
    expect(rows).toBe(1800);
    expect(dataFiles(directory)).toHaveLength(files);
    await expect(save(client, join(directory, 'x'), { rowsPerFile: 0 })).rejects.toMatchObject({
      code: 'BAD_ARGUMENT',
    });
    const other = (await startJob({ ps: 2, code: '1+1' })).client;
    expect(await load(other, directory)).toEqual({ tables: 6, rows: 1800 });
    expect(await digest(other)).toEqual(await digest(client));
  });

  test('an empty job and empty tables', async () => {
    const { client } = await startJob({ ps: 2, code: '1+1' });
    await client.createTable({ name: '../odd name/ü', dim: 3 });
    const directory = join(temporaryDirectory(), 'job');
    expect(await save(client, directory)).toEqual({ tables: 1, rows: 0, files: 0, bytes: 0, lost: 0 });
    const other = (await startJob({ ps: 1, code: 'none' })).client;
    await load(other, directory);
    expect(await digest(other)).toEqual(await digest(client));
  });
});

describe('the directory', () => {
  test('is refused when it is not empty, taken when it is', async () => {
    const { client } = await startJob({ ps: 1, code: 'none' });
    await fill(client, 30);
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'mine.txt'), 'x');
    await expect(save(client, directory)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
    await expect(save(client, join(directory, 'mine.txt'))).rejects.toMatchObject({
      code: 'BAD_ARGUMENT',
    });
    await expect(save(client, join(directory, 'mine.txt', 'x'))).rejects.toMatchObject({
      code: 'BAD_ARGUMENT',
    });
    expect(readdirSync(directory)).toEqual(['mine.txt']);
    mkdirSync(join(directory, 'empty'));
    await save(client, join(directory, 'empty'));
    await verify(join(directory, 'empty'));
  });

  test('is absent, and nothing is left beside it, when the save fails', async () => {
    const { client } = await startJob({ ps: 1, code: 'none' });
    await fill(client, 30);
    const parent = temporaryDirectory();
    const abort = new AbortController();
    const onProgress = () => abort.abort();
    const saving = save(client, join(parent, 'job'), { onProgress, signal: abort.signal });
    await expect(saving).rejects.toMatchObject({ code: 'ABORTED' });
    expect(readdirSync(parent)).toEqual([]);
  });

  test('has one file per table and shard with rows, and no audit table', async () => {
    const { client, directory } = await saved();
    const manifest = await readManifest(directory);
    expect(manifest.tables.map((table) => table.name)).toEqual(
      client
        .tables()
        .map((table) => table.name)
        .sort(),
    );
    expect(dataFiles(directory).sort()).toEqual(manifest.files.map((file) => file.name).sort());
    const places = manifest.files.map((file) => `${file.table} ${file.shard}`);
    expect(new Set(places).size).toBe(places.length);
    expect(manifest.job).toEqual({ id: client.clusterMap.job, pools: client.clusterMap.pools });
  });
});

describe('a damaged directory is refused with the name of the file, and nothing is loaded', () => {
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

  const change = (path: string, edit: (bytes: Buffer) => Buffer) =>
    writeFileSync(path, edit(readFileSync(path)));

  test('truncated, longer, or with one bit flipped anywhere', async () => {
    const { directory } = await saved();
    const name = dataFiles(directory)[3]!;
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
    writeFileSync(path, whole);
    await load(target!, directory);
  });

  test('two files exchanged', async () => {
    const { directory } = await saved();
    const [a, b] = dataFiles(directory).sort() as [string, string];
    const first = readFileSync(join(directory, a));
    writeFileSync(join(directory, a), readFileSync(join(directory, b)));
    writeFileSync(join(directory, b), first);
    await refused(directory, a);
  });

  test('a file missing, or one too many', async () => {
    const { directory } = await saved();
    const name = dataFiles(directory)[0]!;
    const bytes = readFileSync(join(directory, name));
    writeFileSync(join(directory, 'extra.safetensors'), bytes);
    await refused(directory, 'extra.safetensors');
    execFileSync('rm', [join(directory, 'extra.safetensors'), join(directory, name)]);
    await refused(directory, name);
  });

  test('the manifest missing, truncated, altered or of a later version', async () => {
    const { directory } = await saved();
    const path = join(directory, 'manifest.json');
    const text = readFileSync(path, 'utf8');
    const edits = [
      text.slice(0, -10),
      text.replace('"lr": 0.1', '"lr": 0.2'),
      text.replace('kintsugi-checkpoint', 'something'),
      'null',
      '[]',
    ];
    for (const edited of edits) {
      expect(edited).not.toBe(text);
      writeFileSync(path, edited);
      await refused(directory, 'manifest.json');
    }
    const { sha256: _, ...manifest } = JSON.parse(text) as Manifest & { sha256: string };
    writeFileSync(path, encodeManifest({ ...manifest, version: 2 }));
    await refused(directory, 'version 2');
    execFileSync('rm', [path]);
    await refused(directory, 'manifest.json');
  });

  test('a manifest that was made by hand and makes no sense', async () => {
    const { directory } = await saved();
    const path = join(directory, 'manifest.json');
    const manifest = await readManifest(directory);
    const edit = (change: (copy: Manifest) => void): Manifest => {
      const copy = structuredClone(manifest);
      change(copy);
      return copy;
    };
    const nonsense = [
      edit((copy) => (copy.files[0]!.name = '../outside.safetensors')),
      edit((copy) => (copy.files[0]!.rows += 1)),
      edit((copy) => (copy.files[0]!.table = 'nobody')),
      edit((copy) => copy.files.push(copy.files[0]!)),
      edit((copy) => copy.files.pop()),
      edit((copy) => (copy.tables[0]!.dim = 0)),
      edit((copy) => (copy.tables[0]!.optimizer = { kind: 'nope' } as never)),
      edit((copy) => copy.tables.push(copy.tables[0]!)),
      edit((copy) => (copy.tables = undefined as never)),
      edit((copy) => (copy.files = {} as never)),
    ];
    for (const copy of nonsense) {
      writeFileSync(path, encodeManifest(copy));
      await refused(directory, 'manifest.json');
    }
    change(path, () => Buffer.from(encodeManifest(edit((copy) => (copy.tables[0]!.dim += 1)))));
    await refused(directory, '.safetensors');
  });
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

// An independent reader: the format's few rules in Python, which knows nothing of our code.
const READER = `
import json, struct, sys
with open(sys.argv[1], 'rb') as file: data = file.read()
(length,) = struct.unpack('<Q', data[:8])
header = json.loads(data[8:8 + length])
metadata = header.pop('__metadata__')
end = 0
tensors = {}
codes = {'U64': 'Q', 'F32': 'f'}
for name, t in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
    start, stop = t['data_offsets']
    assert start == end, name
    end = stop
    count = 1
    for size in t['shape']: count *= size
    raw = data[8 + length + start: 8 + length + stop]
    values = struct.unpack('<%d%s' % (count, codes[t['dtype']]), raw)
    tensors[name] = {'shape': t['shape'], 'data': [str(x) if t['dtype'] == 'U64' else x for x in values]}
assert 8 + length + end == len(data)
print(json.dumps({'metadata': metadata, 'tensors': tensors}))
`;

interface Read {
  metadata: Record<string, string>;
  tensors: Record<string, { shape: number[]; data: (number | string)[] }>;
}

describe('an independent reader', () => {
  let python = false;
  beforeAll(() => {
    python = spawnSync('python3', ['-c', 'pass']).status === 0;
    if (!python) console.warn('LEFT OUT: python3 is missing, the independent safetensors reader did not run');
  });

  test('agrees on names, shapes and every value', async ({ skip }) => {
    if (!python) skip('python3 is missing');
    const { client, directory } = await saved(60);
    const manifest = await readManifest(directory);
    let rows = 0;
    for (const file of manifest.files.filter((entry) => entry.table === 't/adam')) {
      const text = execFileSync('python3', ['-c', READER, join(directory, file.name)], { encoding: 'utf8' });
      const { metadata, tensors } = JSON.parse(text) as Read;
      expect(metadata).toMatchObject({ table: 't/adam', pool: 'embedding', shard: String(file.shard) });
      const keys = BigUint64Array.from(tensors.keys!.data.map(BigInt));
      const [whole] = await client.pullFull([{ table: 't/adam', keys }]);
      const parts = [tensors.values!, tensors.exp_avg!, tensors.exp_avg_sq!, tensors.step!];
      expect(parts.map((part) => part.shape)).toEqual([
        [keys.length, 7],
        [keys.length, 7],
        [keys.length, 7],
        [keys.length],
      ]);
      const read = [...keys].flatMap((_, i) =>
        parts.flatMap((part) =>
          part.data.slice((i * part.data.length) / keys.length, ((i + 1) * part.data.length) / keys.length),
        ),
      );
      expect(read).toEqual([...whole!]);
      rows += keys.length;
    }
    expect(rows).toBe(60);
    expect(existsSync(directory)).toBe(true);
  });
});
