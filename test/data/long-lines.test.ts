/** A line has at most so many bytes, in every format of lines, wherever the file is cut. */
import { writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { criteo } from '../../src/data/criteo.js';
import { GrowingFiles, wholeLines } from '../../src/data/growing.js';
import { MAX_LINE_BYTES } from '../../src/data/lines.js';
import { openReader } from '../../src/data/open.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import type { DataReader } from '../../src/data/reader.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { readBatches } from './read.js';
import { zstdStored } from './zstd.js';

const schema = parseSchema({ label: 'y', sparse: ['id'] }, 'schema.json');
const reader = openReader(schema);

/** A line of so many bytes without its end, and what is before all lines. */
const FORMATS = {
  'a.csv': { head: 'y,id,other\n', line: (bytes: number) => `1,7,${'x'.repeat(bytes - 4)}` },
  'a.tsv': { head: 'y\tid\tother\n', line: (bytes: number) => `1\t7\t${'x'.repeat(bytes - 4)}` },
  'a.jsonl': { head: '', line: (bytes: number) => `{"y":1,"id":7,"o":"${'x'.repeat(bytes - 21)}"}` },
};

async function sizesOf(batches: AsyncIterable<{ size: number }>): Promise<number[]> {
  const sizes: number[] = [];
  for await (const { size } of batches) sizes.push(size);
  return sizes;
}

function written(name: string, content: string | Buffer): string {
  const file = join(temporaryDirectory(), name);
  writeFileSync(file, content);
  return file;
}

const tooLong = (file: string, line: number) => ({
  code: 'BAD_DATA',
  message: `${file}:${line}:1: a line of more than ${MAX_LINE_BYTES} bytes`,
});

describe.each(Object.entries(FORMATS))('%s', (name, { head, line }) => {
  const first = head === '' ? 1 : 2;
  const lines = (bytes: number, before: number, end = '\n') =>
    `${head}${Array.from({ length: before }, () => `${line(40)}\n`).join('')}${line(bytes)}${end}`;

  test.each([0, 3, 6000, 6389])('a line after %d short ones', async (before) => {
    for (const end of ['\n', '']) {
      const longest = written(name, lines(MAX_LINE_BYTES, before, end));
      expect(await sizesOf(readBatches(reader, { files: [longest], batch: 10_000 }))).toEqual([before + 1]);
      const longer = written(name, lines(MAX_LINE_BYTES + 1, before, end));
      await expect(sizesOf(readBatches(reader, { files: [longer], batch: 10_000 }))).rejects.toMatchObject(
        tooLong(longer, first + before),
      );
    }
  });

  test('compressed files', async () => {
    const text = Buffer.from(lines(MAX_LINE_BYTES + 1, 3));
    for (const file of [written(`${name}.gz`, gzipSync(text)), written(`${name}.zst`, zstdStored(text))])
      await expect(sizesOf(readBatches(reader, { files: [file], batch: 8 }))).rejects.toMatchObject(
        tooLong(file, first + 3),
      );
  });

  test('a range that begins in it or before it names the same line', async () => {
    const text = `${lines(300_000, 3)}${line(40)}\n`;
    const file = written(name, text);
    const end = text.length;
    for (const begin of [0, text.indexOf('x'.repeat(100)), text.length - 200_000])
      await expect(sizesOf(reader.readRange({ file, begin, end, batch: 8 }))).rejects.toMatchObject(
        tooLong(file, first + 3),
      );
    // The end of the line is no more than a line, so this range only skips it.
    expect(await sizesOf(reader.readRange({ file, begin: end - 1000, end, batch: 8 }))).toEqual([1]);
  });
});

test.each([
  ['a.tsv', 'with its end', '\n'],
  ['a.tsv', 'without an end', ''],
  ['a.tsv.gz', 'compressed', '\n'],
])('the Criteo layout: %s, %s', async (name, _what, end) => {
  const text = Buffer.from(
    `${['1', ...Array(39).fill('')].join('\t')}\n${'1'.repeat(MAX_LINE_BYTES + 1)}${end}`,
  );
  const file = written(name, name.endsWith('.gz') ? gzipSync(text) : text);
  await expect(sizesOf(readBatches(criteo, { files: [file], batch: 8 }))).rejects.toMatchObject(
    tooLong(file, 2),
  );
});

test.each<[string, DataReader]>([
  ['a.csv.gz', reader],
  ['a.jsonl.gz', reader],
  ['a.tsv.gz', criteo],
])('%s: a line without an end is refused before it is in memory', async (name, of) => {
  const file = written(name, gzipSync(Buffer.from(`y,id\n${'1'.repeat(64 * 2 ** 20)}`)));
  let chunks = 0;
  const range = { file, begin: name === 'a.csv.gz' ? 0 : 10, end: 2 ** 27, batch: 8 };
  const reading = sizesOf(of.readRange({ ...range, onRead: () => (chunks += 1) }));
  await expect(reading).rejects.toMatchObject(tooLong(file, 2));
  expect(chunks).toBeLessThan(4);
});

test('a header', async () => {
  const file = written('a.csv', `y,id,${'x'.repeat(MAX_LINE_BYTES)}\n`);
  await expect(reader.countRows([file])).rejects.toMatchObject(tooLong(file, 1));
});

test('a file that grows', async () => {
  const file = written('a.csv', `y,id\n1,2\n${'x'.repeat(2 * MAX_LINE_BYTES)}`);
  const growing = new GrowingFiles([file]);
  await expect(growing.sizes()).rejects.toMatchObject(tooLong(file, 3));
  growing.close();
  const whole = written('b.csv', `y,id\n1,2\n${'x'.repeat(MAX_LINE_BYTES)}`);
  const handle = await open(whole);
  expect(await wholeLines(handle, whole, (await handle.stat()).size, 0)).toBe(9);
  await handle.close();
});
