/** Parquet in a real object store is the same batches as on disk, and DuckDB decodes it, too. */
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { beforeEach, describe, expect, test, vi } from 'vitest';
import type { Batch } from '../../src/data/batch.js';
import { openReader } from '../../src/data/open.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import { loadNative } from '../../src/engine/native.js';
import { ENDPOINT, makeBucket } from '../stores/checkpoint/s3-server.js';
import { temporaryDirectory } from '../training/models/rows.js';

const GROUP = 200;
const ROWS = 5 * GROUP;
const schema = parseSchema(
  {
    label: 'y',
    dense: ['x'],
    sparse: ['t', { column: 'id', key: 'integer' }, { column: 'l', key: 'integer', multi: true }],
  },
  'schema.json',
);

function write(file: string, from: number): Uint8Array {
  const flat = (name: string, element: object) => ({ name, repetition_type: 'OPTIONAL', ...element });
  const elements = [
    { name: 'root', num_children: 6 },
    flat('y', { type: 'INT32' }),
    flat('other', { type: 'INT64' }),
    flat('x', { type: 'DOUBLE' }),
    flat('t', { type: 'BYTE_ARRAY', converted_type: 'UTF8' }),
    flat('id', { type: 'INT64' }),
    { name: 'l', repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    flat('element', { type: 'INT64' }),
  ];
  const rows = Array.from({ length: ROWS }, (_, row) => from + row);
  const columnData = [
    { name: 'y', data: rows.map((row) => row % 2) },
    { name: 'other', data: rows.map((row) => BigInt(row) * 7919n) },
    { name: 'x', data: rows.map((row) => (row % 7 === 0 ? null : row / 4)) },
    { name: 't', data: rows.map((row) => (row % 5 === 0 ? null : `text ${row % 90}`)) },
    { name: 'id', data: rows.map((row) => BigInt(row) * 2n ** 40n), encoding: 'PLAIN' },
    { name: 'l', data: rows.map((row) => Array.from({ length: row % 4 }, (_, at) => BigInt(row + at))) },
  ];
  const all = { columnData, schema: elements, rowGroupSize: GROUP, codec: 'UNCOMPRESSED' };
  const bytes = new Uint8Array(
    parquetWriteBuffer(all as unknown as Parameters<typeof parquetWriteBuffer>[0]),
  );
  writeFileSync(file, bytes);
  return bytes;
}

/** Files of a row group that are open, and those that have a name. */
function groupFiles(): { open: number; named: string[] } {
  const links = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return '';
    }
  });
  const open = links.filter((link) => /kintsugi-[\da-f-]{36} \(deleted\)$/.test(link)).length;
  return { open, named: readdirSync(tmpdir()).filter((name) => /^kintsugi-[\da-f-]{36}$/.test(name)) };
}

describe.skipIf(!ENDPOINT || process.platform !== 'linux')('parquet in an object store', () => {
  let bucket = '';
  beforeEach(async () => {
    vi.stubEnv('KINTSUGI_S3_ENDPOINT', ENDPOINT!);
    vi.stubEnv('AWS_REGION', 'us-east-1');
    bucket = await makeBucket();
    return () => {
      vi.unstubAllEnvs();
      vi.restoreAllMocks();
    };
  });

  async function put(name: string, body: Uint8Array): Promise<string> {
    const client = new S3Client({ endpoint: ENDPOINT!, forcePathStyle: true, region: 'us-east-1' });
    await client.send(new PutObjectCommand({ Bucket: bucket, Key: name, Body: body }));
    client.destroy();
    return `s3://${bucket}/${name}`;
  }

  async function ranges(file: string, starts: readonly number[], reader = openReader(schema)) {
    const batches: Batch[] = [];
    for (const [index, begin] of starts.entries()) {
      const end = starts[index + 1] ?? ROWS;
      for await (const batch of reader.readRange({ file, begin, end, batch: 64 })) batches.push(batch);
    }
    return batches;
  }

  test('the same batches in ranges of any length, by DuckDB, and no file stays', async () => {
    const file = join(temporaryDirectory(), 'a.parquet');
    const url = await put('a.parquet', write(file, 0));
    for (const starts of [[0], [0, 50, 100, 199, 200, 201, 650], [333], [999], [0, 450, 600]]) {
      const here = await ranges(file, starts);
      const take = vi.spyOn(loadNative(), 'takeColumns');
      expect(await ranges(url, starts), `ranges from ${starts}`).toEqual(here);
      expect(take).toHaveBeenCalled();
      take.mockRestore();
      expect(groupFiles()).toEqual({ open: 0, named: [] });
    }
  });

  test('several files in turn, of one size, by one reader and by two at a time', async () => {
    const files = [0, 1, 2].map((index) => join(temporaryDirectory(), `${index}.parquet`));
    const urls: string[] = [];
    for (const [index, file] of files.entries())
      urls.push(await put(`${index}.parquet`, write(file, 1260 * (100 + index))));
    expect(new Set(files.map((file) => readFileSync(file).length)).size).toBe(1);
    const [there, here] = [openReader(schema), openReader(schema)];
    for (const turn of [0, 1, 2, 0, 2, 1]) {
      // Ends within a group, so its file waits for the next range.
      const starts = [0, 120, 340];
      const [found, expected] = [[], []] as Batch[][];
      for (const [begin, end] of [
        [starts[0]!, starts[1]!],
        [starts[2]!, 350],
      ] as const) {
        const range = { begin, end, batch: 50 };
        for await (const batch of there.readRange({ file: urls[turn]!, ...range })) found!.push(batch);
        for await (const batch of here.readRange({ file: files[turn]!, ...range })) expected!.push(batch);
      }
      expect(found).toEqual(expected);
      // The reader has the newest group open, and so has DuckDB.
      expect(groupFiles()).toEqual({ open: 2, named: [] });
    }
    const both = await Promise.all(urls.map((url) => ranges(url, [0, 77, 500], there)));
    for (const [index, batches] of both.entries())
      expect(batches).toEqual(await ranges(files[index]!, [0, 77, 500]));
  });

  test('a file that is written again while it is read is BAD_DATA', async () => {
    const file = join(temporaryDirectory(), 'a.parquet');
    const url = await put('a.parquet', write(file, 0));
    const reader = openReader(schema);
    await ranges(url, [800], reader);
    await put('a.parquet', write(file, 5000));
    await expect(ranges(url, [0], reader)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: expect.stringContaining('a.parquet: was written again while it was read'),
    });
  });
});
