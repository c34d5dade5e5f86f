/** Data files in a real object store: read by ranges, named by addresses, also over a bad connection. */
import { readFileSync } from 'node:fs';
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, test, vi } from 'vitest';
import { chunks } from '../../src/data/bytes.js';
import { fileSource } from '../../src/data/file-source.js';
import { openReader } from '../../src/data/open.js';
import { expandPaths } from '../../src/data/paths.js';
import { ENDPOINT, makeBucket, startProxy } from '../stores/checkpoint/s3-server.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { readBatches } from './read.js';
import { FORMAT_NAMES, samples, schema, writeSamples } from './samples.js';

async function collected<T>(all: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const each of all) found.push(each);
  return found;
}

describe.skipIf(!ENDPOINT)('an object store', () => {
  let bucket = '';
  beforeEach(async () => {
    vi.stubEnv('KINTSUGI_S3_ENDPOINT', ENDPOINT!);
    vi.stubEnv('AWS_REGION', 'us-east-1');
    bucket = await makeBucket();
    return () => vi.unstubAllEnvs();
  });

  async function put(name: string, body: Uint8Array | string): Promise<string> {
    const client = new S3Client({ endpoint: ENDPOINT!, forcePathStyle: true, region: 'us-east-1' });
    await client.send(new PutObjectCommand({ Bucket: bucket, Key: name, Body: body }));
    client.destroy();
    return `s3://${bucket}/${name}`;
  }

  test.each(FORMAT_NAMES)('%s: the same batches as on disk, whole and in ranges', async (name) => {
    const file = writeSamples(temporaryDirectory(), name, samples(300));
    const url = await put(`day=1/some data.${name.slice(2)}`, readFileSync(file));
    const reader = openReader(schema);
    const [there, here] = await Promise.all(
      [url, file].map((each) => collected(readBatches(reader, { files: [each!], batch: 50 }))),
    );
    expect(there).toEqual(here);
    expect(await reader.countRows([url])).toBe(300);
    const { size } = await reader.measure(url);
    expect(size).toBe((await reader.measure(file)).size);
    const middle = Math.floor(size / 3);
    for (const [begin, end] of [
      [0, middle],
      [middle, size],
    ] as const) {
      const range = { begin, end, batch: 50 };
      const ranges = [url, file].map((each) => collected(reader.readRange({ file: each!, ...range })));
      const [inStore, onDisk] = await Promise.all(ranges);
      expect(inStore).toEqual(onDisk);
    }
  });

  test('over a connection that fails and cuts answers nothing is lost or read twice', async () => {
    const faults = ['busy', 'halfAnswer', 'failed', undefined, 'lost', 'halfAnswer', undefined] as const;
    let requests = 0;
    const proxy = await startProxy(() => faults[requests++ % faults.length]);
    const content = Buffer.from(Array.from({ length: 400_000 }, (_, index) => `${index}\n`).join(''));
    const url = await put('numbers', content);
    vi.stubEnv('KINTSUGI_S3_ENDPOINT', proxy.endpoint);
    for (const from of [0, 1_000_003]) {
      const read = Buffer.concat(await collected(chunks(url, from)));
      expect(read.equals(content.subarray(from))).toBe(true);
    }
    expect(proxy.counts.halfAnswer).toBeGreaterThan(0);
  });

  test('addresses, directories and patterns', async () => {
    for (const name of ['a/2.tsv', 'a/1.tsv', 'a/b/3.tsv', 'a/_SUCCESS', 'a/.x/4.tsv', 'ab.tsv', 'a/5.csv'])
      await put(name, 'x\n');
    const found = async (path: string) => {
      const files = await expandPaths([`s3://${bucket}/${path}`]);
      return files.map((file) => file.slice(`s3://${bucket}/`.length));
    };
    expect(await found('a')).toEqual(['a/1.tsv', 'a/2.tsv', 'a/5.csv', 'a/b/3.tsv']);
    expect(await found('a/')).toEqual(await found('a'));
    expect(await found('a/*.tsv')).toEqual(['a/1.tsv', 'a/2.tsv']);
    expect(await found('*/*/?.tsv')).toEqual(['a/b/3.tsv']);
    expect(await found('ab.tsv')).toEqual(['ab.tsv']);
    expect(await found('none.tsv')).toEqual(['none.tsv']);
    const twice = [`s3://${bucket}/a`, `s3://${bucket}/a/1.tsv`];
    await expect(expandPaths(twice)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: `${twice[1]}: is named more than once`,
    });
    await expect(found('none/')).rejects.toMatchObject({ code: 'BAD_DATA', message: /no data files/ });
    await expect(found('b*')).rejects.toMatchObject({ code: 'BAD_DATA', message: /no file matches/ });
  });

  test('a file that is not there is named, and none is followed', async () => {
    const url = `s3://${bucket}/none.tsv`;
    const source = fileSource(openReader(schema), [url]);
    await expect(source.list()).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: `${url}: there is no such file`,
    });
    await expect(source.sizes!()).rejects.toMatchObject({
      code: 'BAD_ARGUMENT',
      message: /is in an object store/,
    });
    await expect(expandPaths(['s3:///a'])).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  });
});
