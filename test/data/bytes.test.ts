/** Compressed files read as plain ones do, and a broken file is named. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import type { KintsugiError } from '../../src/common/errors.js';
import { chunks, markOf } from '../../src/data/bytes.js';
import { criteo } from '../../src/data/criteo.js';
import { GrowingFiles } from '../../src/data/growing.js';
import { expandPaths } from '../../src/data/paths.js';
import { npyArray } from '../../src/data/vectors/arrays.js';
import { unzstd } from '../../src/data/zstd.js';
import { row, temporaryDirectory } from '../training/models/rows.js';
import { zstdStored } from './zstd.js';

const TEXT = Buffer.from(
  Array.from({ length: 3000 }, (_, i) => `${row(String(i % 2), [`${i}`])}\n`).join(''),
);

function write(name: string, content: Uint8Array): string {
  const path = join(temporaryDirectory(), name);
  writeFileSync(path, content);
  return path;
}

async function read(file: string, from = 0): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const chunk of chunks(file, from)) parts.push(Buffer.from(chunk));
  return Buffer.concat(parts);
}

const hasZstd = spawnSync('zstd', ['--version']).status === 0;

test('the mark of a file tells it from others of its size, by both ends', async () => {
  const content = Buffer.alloc(100_000, 'a');
  const other = (at: number) => {
    const bytes = Buffer.from(content);
    bytes[at] = 1;
    return bytes;
  };
  const marks = [content, other(0), other(99_999), content.subarray(1), Buffer.alloc(0), Buffer.alloc(1)].map(
    (bytes, i) => markOf(write(`${i}.parquet`, bytes)),
  );
  const all = await Promise.all(marks);
  expect(new Set(all).size).toBe(all.length);
  expect(await markOf(write('same.parquet', content))).toBe(all[0]);
});

test('what is behind the end of a compressed file is no padding but an error', async () => {
  const [one, zeros] = [gzipSync(TEXT), Buffer.alloc(300_000)];
  expect((await read(write('padded.tsv.gz', Buffer.concat([one, zeros])))).equals(TEXT)).toBe(true);
  const frame = zstdStored(TEXT);
  const files = [
    write('a.tsv.gz', Buffer.concat([one, zeros, one])),
    write('b.tsv.gz', Buffer.concat([one, zeros, Buffer.from([1])])),
    write('c.tsv.zst', Buffer.concat([frame, zeros])),
    write('d.tsv.zst', Buffer.concat([frame, TEXT])),
    write('e.tsv.zst', Buffer.alloc(0)),
    write('f.tsv.gz', Buffer.alloc(0)),
  ];
  for (const file of files) await expect(read(file), file).rejects.toMatchObject({ code: 'BAD_DATA' });
  await expect(read(files[0]!)).rejects.toThrow('something is behind the end of what is compressed');
});

describe('zstd', () => {
  test('one frame and several, from the start and from the middle', async () => {
    const half = TEXT.length >> 1;
    const frames = [zstdStored(TEXT.subarray(0, half)), zstdStored(TEXT.subarray(half), 100_000)];
    for (const content of [zstdStored(TEXT), Buffer.concat(frames)]) {
      const file = write('a.tsv.zst', content);
      expect((await read(file)).equals(TEXT)).toBe(true);
      expect((await read(file, 12_345)).equals(TEXT.subarray(12_345))).toBe(true);
      expect(await criteo.countRows([file])).toBe(3000);
    }
  });

  test.skipIf(!hasZstd)('what the zstd program has compressed (it must be installed)', async () => {
    const plain = write('a.tsv', TEXT);
    for (const level of ['-1', '-19']) {
      expect(spawnSync('zstd', ['-q', '-f', level, plain]).status).toBe(0);
      expect((await read(`${plain}.zst`)).equals(TEXT)).toBe(true);
    }
  });

  test('no byte may be another one: the content has a checksum', async () => {
    // By the zstd program, at level 19: 40 lines of a label, a number and a name.
    const packed = Buffer.from(
      'KLUv/WTdAEUEAMLJFQ7Q5zAuHJEtsjftd3hrxCW82Cg+MfGzt77RFtgW+oM10yXsBW29/0qNfaCPsB30' +
        'zd7RFezp+hlboafLorDVG3RZA1tDELrECbZe0xXEseU7XQXHoMSyASeoIESSJu8boBkqBxBMgQs+sil0' +
        'hoiaYRW5BpGDujOnUrKnClqvAUIeCDv/gKQubnW9',
      'base64',
    );
    const lines = Array.from({ length: 40 }, (_, i) => `${i % 2}\t${(i * 37) % 101}\tuser-${i % 7}\n`);
    const content = Buffer.from(lines.join(''));
    // Frames that readers pass over may stand anywhere.
    const note = Buffer.from([0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    const twice = write('twice.zst', Buffer.concat([note, packed, note, packed, note]));
    expect((await read(twice)).equals(Buffer.concat([content, content]))).toBe(true);
    const unpack = await unzstd();
    expect(Buffer.from(unpack(packed, content.length)).equals(content)).toBe(true);
    const outcomes: unknown[] = [];
    for (let at = 0; at < packed.length; at++) {
      const other = Buffer.from(packed);
      other[at]! ^= 0x10;
      const got = await read(write('other.zst', other)).catch((error: KintsugiError) => error.code);
      let unpacked: unknown = 'BAD_DATA';
      try {
        unpacked = Buffer.from(unpack(other, content.length));
      } catch {}
      // A bit of the header says nothing.
      for (const each of [got, unpacked])
        outcomes.push(each instanceof Buffer && each.equals(content) ? 'the content' : each);
    }
    expect(new Set(outcomes)).toEqual(new Set(['the content', 'BAD_DATA']));
    expect(outcomes.filter((each) => each === 'the content').length).toBeLessThan(10);
  });

  test('a file that is cut off, and one that is none, are named', async () => {
    const cut = write('cut.tsv.zst', zstdStored(TEXT).subarray(0, 2000));
    const none = write('none.tsv.zst', TEXT);
    for (const file of [cut, none]) {
      const error = await read(file).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: 'BAD_DATA', message: expect.stringContaining(file) });
    }
  });

  test('a range of a compressed file has the rows of the same range of the plain one', async () => {
    const [packed, plain] = [write('a.tsv.zst', zstdStored(TEXT)), write('a.tsv', TEXT)];
    const { size, least } = await criteo.measure(packed);
    expect([size, least]).toEqual([TEXT.length, Math.ceil(TEXT.length / 8)]);
    for (let begin = 0; begin < size; begin += least) {
      const range = { begin, end: Math.min(size, begin + least), batch: 10_000 };
      const batches = [];
      for (const file of [packed, plain])
        for await (const batch of criteo.readRange({ ...range, file })) batches.push(batch);
      expect(batches[0]!.size).toBeGreaterThan(300);
      expect(batches[0]).toEqual(batches[1]);
    }
  });
});

describe.skipIf(process.platform === 'win32')('a pipe that nobody writes to', () => {
  function pipe(name: string): string {
    const path = join(temporaryDirectory(), name);
    expect(spawnSync('mkfifo', [path]).status).toBe(0);
    return path;
  }

  test.each([
    ['a path', 'a.tsv', (file: string) => expandPaths([file])],
    ['lines', 'a.tsv', (file: string) => read(file)],
    ['what is compressed', 'a.tsv.gz', (file: string) => read(file)],
    ['a list of files', 'a.tsv', (file: string) => criteo.countRows([file])],
    ['files that grow', 'a.tsv', (file: string) => new GrowingFiles([file]).sizes()],
    ['an array', 'a.npy', (file: string) => npyArray(file)],
  ])('is refused as %s, and not opened', async (_, name, work) => {
    const file = pipe(name);
    const error = await work(file).catch((thrown: unknown) => thrown);
    const message = `${file}: must be a regular file, whose parts can be read again; it is a pipe`;
    expect(error).toMatchObject({ code: 'BAD_DATA', message });
  });
});
