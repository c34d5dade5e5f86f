import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { categoryKey, criteo, missingKey } from '../../src/data/criteo.js';
import type { Batch } from '../../src/training/models/trainer.js';
import { row, temporaryDirectory } from '../training/models/rows.js';
import { type ReadOptions, readBatches } from './read.js';

const { countRows } = criteo;

async function read(options: ReadOptions): Promise<Batch[]> {
  const batches: Batch[] = [];
  for await (const batch of readBatches(criteo, options)) batches.push(batch);
  return batches;
}

/** Labels of all batches as text: which rows were read, in order. */
const labelsOf = (batches: Batch[]) => batches.map(({ labels }) => [...labels].join('')).join(' ');

function write(name: string, content: string | Uint8Array): string {
  const path = join(temporaryDirectory(), name);
  writeFileSync(path, content);
  return path;
}

/** Row i has label i % 2 and C1 = i. */
const lines = (from: number, count: number) =>
  Array.from({ length: count }, (_, i) => row(String((from + i) % 2), [], [(from + i).toString(16)]));

describe('fields', () => {
  test('integers become log1p, empty and negative ones 0; categories are keys of their column', async () => {
    const integers = ['0', '1', '-3', '', '4095', '4096', '999999999999999'];
    const categories = ['0', 'ff', '0A1b2C3d', '', 'ffffffff'];
    const file = write('a.tsv', `${row('1', integers, categories)}\n`);
    const [batch] = await read({ files: [file], batch: 4 });
    expect(batch!.size).toBe(1);
    expect([...batch!.labels]).toEqual([1]);
    const expected = [
      0,
      Math.log1p(1),
      0,
      0,
      Math.log1p(4095),
      Math.log1p(4096),
      Math.log1p(999999999999999),
    ];
    expect([...batch!.dense]).toEqual([...expected, 0, 0, 0, 0, 0, 0].map(Math.fround));
    const keys = [...batch!.keys];
    expect(keys[0]).toBe(1n << 32n);
    expect(keys[1]).toBe((2n << 32n) | 0xffn);
    expect(keys[2]).toBe(categoryKey(2, 0x0a1b2c3d));
    expect(keys[3]).toBe(missingKey(3));
    expect(keys[4]).toBe(categoryKey(4, 0xffffffff));
    expect(keys[25]).toBe(missingKey(25));
    expect(new Set(keys).size).toBe(26);
  });

  test('a missing value is no real value of any column, and not the reserved key', () => {
    for (let column = 0; column < 26; column++) {
      expect(missingKey(column) >> 63n).toBe(1n);
      expect(missingKey(column)).toBeLessThan(2n ** 64n - 1n);
      expect(categoryKey(column, 0xffffffff) >> 63n).toBe(0n);
    }
  });
});

describe('files', () => {
  test('a batch ends with its file; the last one of each is partial', async () => {
    const first = write('a.tsv', `${lines(0, 5).join('\n')}\n`);
    const second = write('b.tsv', lines(5, 4).join('\n'));
    const batches = await read({ files: [first, second], batch: 4 });
    expect(batches.map(({ size }) => size)).toEqual([4, 1, 4]);
    const values = batches.flatMap(({ keys, size }) =>
      Array.from({ length: size }, (_, i) => Number(keys[i * 26]! & 0xffffffffn)),
    );
    expect(values).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(batches[1]!.keys.length).toBe(26);
    expect(batches[1]!.dense.length).toBe(13);
  });

  test('gzip, also of several members, and lines that end in CR LF', async () => {
    const last = gzipSync(`${lines(3, 2).join('\n')}\n`);
    const plain = await read({ files: [write('plain.tsv', `${lines(0, 5).join('\n')}\n`)], batch: 3 });
    for (const end of ['\r\n', '\r\r\n', '\r\r\r\n']) {
      const file = write('a.tsv.gz', Buffer.concat([gzipSync(`${lines(0, 3).join(end)}${end}`), last]));
      const batches = await read({ files: [file], batch: 3 });
      expect(labelsOf(batches)).toBe('010 10');
      expect(batches).toEqual(plain);
      expect(await countRows([file])).toBe(5);
    }
  });

  test('rows that cross the boundary of a read chunk', async () => {
    const count = 20_000;
    const file = write('a.tsv', `${lines(0, count).join('\n')}\n`);
    let next = 0;
    for await (const { keys, size } of readBatches(criteo, { files: [file], batch: 1000 })) {
      for (let i = 0; i < size; i++) {
        if (keys[i * 26] !== categoryKey(0, next)) expect.fail(`row ${next} has the key ${keys[i * 26]}`);
        next += 1;
      }
    }
    expect(next).toBe(count);
  });

  test('countRows counts a last line without newline, and nothing in an empty file', async () => {
    const empty = write('a.tsv', '');
    const open = write('b.tsv', lines(0, 3).join('\n'));
    const closed = write('c.tsv', `${lines(0, 4).join('\n')}\n`);
    expect(await countRows([empty])).toBe(0);
    expect(await countRows([empty, open, closed])).toBe(7);
    expect(await read({ files: [empty], batch: 2 })).toEqual([]);
  });
});

describe('errors', () => {
  const good = row('1');
  const at = (line: string) => write('x.tsv', `${good}\n${line}\n${good}\n`);

  test.each([
    ['too few columns', '1\t2\t3', ':2:6: 3 columns instead of 40'],
    ['too many columns', `${good}\t`, ':2:41: 41 columns instead of 40'],
    ['an empty line', '', ':2: a blank line; only the end of a file may have some'],
    ['a label that is not 0 or 1', row('2'), ':2:1: the label must be 0 or 1, not "2"'],
    ['a label with more behind it', row('10'), ':2:1: the label must be 0 or 1, not "10"'],
    ['no label', row(''), ':2:1: the label must be 0 or 1, not ""'],
    ['a word for an integer', row('0', ['7', 'seven']), ':2:5: I2 must be an integer or empty, not "seven"'],
    ['a fraction', row('0', ['', '', '1.5']), ':2:5: I3 must be an integer or empty, not "1.5"'],
    ['a lonely minus', row('0', ['-']), ':2:3: I1 must be an integer or empty, not "-"'],
    ['an integer that is too long', row('0', ['1234567890123456']), ':2:3: I1 must be'],
    ['a bad last integer', row('0', Array(13).fill('5').with(12, '5x')), ':2:27: I13 must be'],
    [
      'a bad digit',
      row('0', [], ['12g4']),
      ':2:16: C1 must be up to 8 hexadecimal digits or empty, not "12g4"',
    ],
    ['a ninth digit', row('0', [], ['', '123456789']), ':2:17: C2 must be'],
    ['a bad last category', row('0', [], Array(26).fill('a').with(25, 'z')), ':2:66: C26 must be'],
  ])('%s', async (_name, line, message) => {
    const file = at(line);
    const error = await read({ files: [file], batch: 8 }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'BAD_DATA', message: expect.stringContaining(`${file}${message}`) });
  });

  test('a file that is not there is noticed before the first row', async () => {
    const present = write('a.tsv', `${good}\n`);
    const missing = join(temporaryDirectory(), 'missing.tsv');
    const first = readBatches(criteo, { files: [present, missing], batch: 1 }).next();
    await expect(first).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: expect.stringContaining(missing),
    });
    await expect(countRows([missing])).rejects.toMatchObject({ code: 'BAD_DATA' });
  });

  test('a truncated gzip file, and one that is no gzip at all', async () => {
    const cut = write('a.tsv.gz', gzipSync(`${lines(0, 1000).join('\n')}\n`));
    truncateSync(cut, 1000);
    const plain = write('b.tsv.gz', `${good}\n`);
    for (const file of [cut, plain]) {
      const reading = read({ files: [file], batch: 8 });
      await expect(reading).rejects.toMatchObject({
        code: 'BAD_DATA',
        message: expect.stringContaining(file),
      });
    }
  });

  test('a file without newlines is refused before it fills the memory', async () => {
    const file = write('a.tsv', '0'.repeat(1_000_000));
    const reading = read({ files: [file], batch: 8 });
    await expect(reading).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: expect.stringContaining(':1:1:'),
    });
  });

  test('options out of range', async () => {
    const file = write('a.tsv', `${good}\n`);
    for (const options of [
      { files: [], batch: 1 },
      { files: [file], batch: 0 },
    ]) {
      await expect(read(options)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
    }
  });
});
