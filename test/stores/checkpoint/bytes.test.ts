import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { SLICE_BYTES, sha256Of, slices } from '../../../src/stores/checkpoint/bytes.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { random, temporaryDirectory } from './support.js';

test('slices are the same bytes in their order, each but the last of the same size', () => {
  const next = random(2);
  for (let run = 0; run < 20; run++) {
    const lengths = Array.from({ length: next() % 9 }, () => next() % (next() % 2 ? 10 : 3 * SLICE_BYTES));
    const parts = lengths.map((length) => new Uint8Array(length).fill(next() % 256));
    const found = [...slices(parts)];
    expect(Buffer.compare(Buffer.concat(found.flat()), Buffer.concat(parts))).toBe(0);
    const sizes = found.map((slice) => slice.reduce((sum, piece) => sum + piece.length, 0));
    expect(sizes.slice(0, -1).every((size) => size === SLICE_BYTES)).toBe(true);
    expect(sizes.every((size) => size > 0)).toBe(true);
  }
});

test.each<[string, (file: Uint8Array, i: number) => Promise<string>]>([
  ['hashed', (file) => sha256Of([file])],
  [
    'written',
    (() => {
      let place: DirectoryPlace | undefined;
      return async (file, i) => {
        place ??= new DirectoryPlace(temporaryDirectory());
        return (await place.put(`file-${i}`, [file])).sha256;
      };
    })(),
  ],
])('of files that are %s at once, one slice is hashed in a turn of the event loop', async (_what, hashed) => {
  const [files, perFile] = [8, 4];
  let turns = 0;
  let over = false;
  const count = (): void => {
    turns++;
    if (!over) setImmediate(count);
  };
  setImmediate(count);
  const file = new Uint8Array(perFile * SLICE_BYTES).fill(9);
  const found = await Promise.all(Array.from({ length: files }, (_, i) => hashed(file, i)));
  over = true;
  const wanted = createHash('sha256').update(file).digest('hex');
  expect(found).toEqual(Array.from({ length: files }, () => wanted));
  expect(turns).toBeGreaterThanOrEqual(files * perFile - 1);
});
