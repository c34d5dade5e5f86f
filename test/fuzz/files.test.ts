// The fuzzer of checkpoint files in a small mode; `npm run fuzz:files` runs a million.
import { describe, expect, it } from 'vitest';
import { decodeManifest } from '../../src/stores/checkpoint/manifest.js';
import { decodeSegment } from '../../src/stores/checkpoint/segment.js';
import { fuzzFiles, fuzzPlaces } from './files.js';

const FILES = Number(process.env.KINTSUGI_FILES ?? 4000);
const SEED = Number(process.env.KINTSUGI_SEED ?? 1);
const readers = { decodeSegment, decodeManifest };

describe('generated and mutated files of checkpoints', () => {
  it('are read or BAD_CHECKPOINT, the same for the same seed', { timeout: 3_600_000 }, () => {
    const report = fuzzFiles(readers, FILES, SEED);
    console.log(JSON.stringify({ seed: SEED, ...report }));
    expect(report.accepted + report.refused).toBe(report.files);
    expect(report.accepted).toBeGreaterThan(report.files / 20);
    expect(report.refused).toBeGreaterThan(report.files / 4);
    expect(report.loaded).toBeGreaterThan(report.files / 100);
    expect(report.begun).toBeGreaterThan(report.files / 100);
    expect(fuzzFiles(readers, 1000, 7).digest).toBe(fuzzFiles(readers, 1000, 7).digest);
    expect(fuzzFiles(readers, 1000, 7).digest).not.toBe(fuzzFiles(readers, 1000, 8).digest);
  });

  it('are named when they are damaged', { timeout: 3_600_000 }, async () => {
    expect(await fuzzPlaces(FILES / 20, SEED)).toBeGreaterThan(FILES / 40);
  });

  it('would be caught if a reader gave anything else', () => {
    const broken = {
      ...readers,
      decodeSegment: (bytes: Uint8Array, file: string) => {
        const segment = decodeSegment(bytes, file);
        return { ...segment, tables: segment.tables.map((table) => ({ ...table, keys: table.removed })) };
      },
    };
    expect(() => fuzzFiles(broken, 500, 1)).toThrow(/segment \d+ of seed 1: [0-9a-f]/);
  });
});
