/** Ranges of files: every line belongs to one, the one in which it starts. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { criteo } from '../../src/data/criteo.js';
import { row, temporaryDirectory } from '../training/models/rows.js';
import { cutFiles } from './read.js';

const { countRows, readRange } = criteo;

function write(name: string, content: string | Uint8Array): string {
  const path = join(temporaryDirectory(), name);
  writeFileSync(path, content);
  return path;
}

/** C1 says which line it is; widths differ. */
const line = (i: number) => row(String(i % 2), ['1'.repeat(1 + (i % 7))], [i.toString(16)]);
const lines = (count: number, newline = '\n') =>
  Array.from({ length: count }, (_, i) => `${line(i)}${newline}`).join('');

async function read(file: string, begin: number, end: number, batch = 4): Promise<number[][]> {
  const batches: number[][] = [];
  for await (const { keys, size } of readRange({ file, begin, end, batch }))
    batches.push(Array.from({ length: size }, (_, i) => Number(keys[i * 26]! & 0xffffffffn)));
  return batches;
}

test('reading through what comes before a range is told', async () => {
  const text = lines(200_000);
  const file = write('long.tsv.gz', gzipSync(text));
  let reads = 0;
  const onRead = () => {
    reads += 1;
  };
  const begin = text.length - 1;
  const batches = readRange({ file, begin, end: text.length, batch: 4, onRead });
  expect(await batches.next()).toEqual({ done: true, value: undefined });
  expect(reads).toBeGreaterThan(4);
});

describe('a range', () => {
  test.each([
    ['plain', 'a.tsv', lines(60), 60],
    ['compressed', 'a.tsv.gz', gzipSync(lines(60)), 60],
    ['with CR LF', 'b.tsv', lines(60, '\r\n'), 60],
    ['without a last newline', 'c.tsv', lines(60).slice(0, -1), 60],
  ])(
    'has the lines that start in it: %s',
    async (_, name, content, count) => {
      const file = write(name, content);
      const size = name.endsWith('.gz') ? lines(60).length : content.length;
      const all = Array.from({ length: count }, (_, i) => i);
      // Also ranges that are narrower than a line, and borders on every byte of the first lines.
      for (const width of [7, 100, 101, 102, 1000, size]) {
        const seen: number[] = [];
        for (let begin = 0; begin < size; begin += width)
          seen.push(...(await read(file, begin, Math.min(size, begin + width))).flat());
        expect([width, seen]).toEqual([width, all]);
      }
      for (let border = 1; border < 2 * line(0).length; border += 1) {
        const both = [await read(file, 0, border), await read(file, border, size)].flat(2);
        expect([border, both]).toEqual([border, all]);
      }
    },
    60_000,
  );

  test('has batches of its own, the last one perhaps partial', async () => {
    const file = write('a.tsv', lines(20));
    const sizes = async (begin: number, end: number) => (await read(file, begin, end)).map((b) => b.length);
    const middle = lines(10).length;
    expect(await sizes(0, middle)).toEqual([4, 4, 2]);
    expect(await sizes(middle, lines(20).length)).toEqual([4, 4, 2]);
    expect(await sizes(middle, middle)).toEqual([]);
  });

  test('names a malformed line by its number in the file', async () => {
    for (const name of ['a.tsv', 'a.tsv.gz']) {
      const content = `${lines(30)}oops\n${lines(3)}`;
      const file = write(name, name.endsWith('.gz') ? gzipSync(content) : content);
      const begin = lines(20).length;
      for (const from of [0, begin - 3, begin, begin + 1]) {
        const wrong = read(file, from, content.length);
        await expect(wrong).rejects.toMatchObject({
          code: 'BAD_DATA',
          message: expect.stringContaining(`${file}:31:`),
        });
      }
    }
  });

  test.each(['cut.tsv', 'cut.tsv.gz'])(
    'of a file that was cut since it was listed is an error: %s',
    async (name) => {
      const text = lines(60);
      const content = lines(40);
      const file = write(name, name.endsWith('.gz') ? gzipSync(content) : content);
      for (const begin of [0, content.length, content.length + 9])
        await expect(read(file, begin, text.length)).rejects.toMatchObject({
          code: 'BAD_DATA',
          message: /cut\.tsv.*: ends at byte \d+, and went on to \d+: it was cut meanwhile/,
        });
      expect((await read(file, 0, content.length)).flat()).toHaveLength(40);
    },
  );

  test('longer than a read chunk', async () => {
    const file = write('a.tsv', lines(12_000));
    const size = lines(12_000).length;
    const cut = Math.floor(size / 3);
    const parts = [await read(file, 0, cut, 500), await read(file, cut, size, 500)];
    expect(parts.flat(2)).toEqual(Array.from({ length: 12_000 }, (_, i) => i));
  });
});

describe('cutting', () => {
  test('is by size: about so many batches, fewer where the data are few', async () => {
    const file = write('a.tsv', lines(4000));
    const size = lines(4000).length;
    const [asked] = await cutFiles(criteo, [file], 10, 8);
    expect(asked).toMatchObject({ name: 'a.tsv', size });
    expect(asked!.rangeBytes / (size / 4000)).toBeGreaterThan(75);
    expect(asked!.rangeBytes / (size / 4000)).toBeLessThan(81);
    const [few] = await cutFiles(criteo, [file], 10);
    expect(Math.ceil(size / few!.rangeBytes)).toBeGreaterThanOrEqual(16);
    const [batches] = await cutFiles(criteo, [file], 1000);
    expect(batches!.rangeBytes).toBeGreaterThan(size / 2);
  });

  test('leaves compressed files in few ranges, by what is in them', async () => {
    const file = write('a.tsv.gz', gzipSync(lines(4000)));
    const [cut] = await cutFiles(criteo, [file], 10, 1);
    expect(cut!.size).toBe(lines(4000).length);
    expect(Math.ceil(cut!.size / cut!.rangeBytes)).toBe(8);
    expect(await countRows([file])).toBe(4000);
  });

  test('of an empty file gives no range; one that is missing is named', async () => {
    expect(await cutFiles(criteo, [write('a.tsv', '')], 10)).toMatchObject([{ size: 0 }]);
    const missing = join(temporaryDirectory(), 'no.tsv');
    await expect(cutFiles(criteo, [missing], 10)).rejects.toMatchObject({ code: 'BAD_DATA' });
  });
});
