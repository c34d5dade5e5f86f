/** Event files, read back by TensorBoard itself. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { crc32c, EventFile } from '../../../src/library/observe/event-file.js';
import { PYTHON, readScalars } from './python.js';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-events-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

it('checksums are those of the Castagnoli polynomial', () => {
  expect(crc32c(Buffer.from('123456789'))).toBe(0xe3069283);
  expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa);
});

it.skipIf(!PYTHON)('TensorBoard reads what was written, and refuses what was changed', () => {
  const run = join(directory, 'run');
  const file = new EventFile(run);
  file.scalars(0, { loss: 0.75 });
  file.scalars(5_000_000_000, { loss: 0.5, 'process/rss_bytes': 2 ** 30, missing: undefined });
  file.scalars(7, { nothing: Number.NaN });
  expect(readScalars([run])).toEqual({
    [run]: {
      loss: [
        [0, 0.75],
        [5_000_000_000, 0.5],
      ],
      'process/rss_bytes': [[5_000_000_000, 2 ** 30]],
    },
  });
  const path = join(run, readdirSync(run)[0]!);
  const bytes = readFileSync(path);
  bytes[bytes.length - 6]! ^= 1;
  writeFileSync(path, bytes);
  expect(readScalars([run])[run]?.loss?.length).toBe(1);
});

it('a directory that cannot be written is named', () => {
  const file = join(directory, 'file');
  writeFileSync(file, '');
  expect(() => new EventFile(join(file, 'run'))).toThrow(
    expect.objectContaining({ code: 'BAD_ARGUMENT', message: expect.stringContaining(file) }),
  );
});
