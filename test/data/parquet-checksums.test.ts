/** Pages of parquet that have a checksum are compared with it, whoever decodes them; so are their rows. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { parquetMetadata } from 'hyparquet';
import { expect, test, vi } from 'vitest';
import { parquetFormat } from '../../src/data/parquet-format.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import { readerOf } from '../../src/data/reader.js';
import { SchemaRows } from '../../src/data/rows.js';
import { loadNative } from '../../src/engine/native.js';
import { XXH64_STATE_WORDS } from '../../src/engine/native-data.js';
import { randomOf } from '../fuzz/damage.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { readBatches } from './read.js';

/**
 * Files of pyarrow 26.0.1 with `write_page_checksum`: y = [0, 1, 1], t = ["ab", "cd", null], l = [["a", "b"],
 * [], ["c"]].
 */
const FILES = {
  'pages of the first version': [
    'UEFSMRUEFRAVFBWE+q8hPBUEFQASAAAIHAAAAAABAAAAFQAVEhUWFYnX8q4PHBUGFRAVBhUGHAAAAAkgAgAAAAYBAQMGFQQVGBUc',
    'FfiW8vEOPBUEFQASAAAMLAIAAABhYgIAAABjZBUAFRIVFhXN2Nb2AxwVBhUQFQYVBhwAAAAJIAIAAAADAwEDAhUEFR4VIhWtpO2R',
    'AzwVBhUAEgAADzgBAAAAYQEAAABiAQAAAGMVABUiFSYVspfpsgYcFQgVEBUGFQYcAAAAEUACAAAAAwIDAAAAA98AAgMkABUEGWw1',
    'ABgGc2NoZW1hFQYAFQIlAhgBeQAVDCUCGAF0JQBMHAAAADUCGAFsFQIVBkw8AAAANQQYBGxpc3QVAgAVDCUCGAdlbGVtZW50JQBM',
    'HAAAABYGGRwZPCYAHBUCGTUABhAZGAF5FQIWBhZ6FoIBJkImCCksFQQVABUCABUAFRAVAgA8KQYZJgAGAAAAJgAcFQwZNQAGEBkY',
    'AXQVAhYGFoQBFowBJs4BJooBKSwVBBUAFQIAFQAVEBUCADwWCBkGGSYCBAAAACYAHBUMGTUABhAZOAFsBGxpc3QHZWxlbWVudBUC',
    'FggWmgEWogEm4AImlgIpLBUEFQAVAgAVABUQFQIAPBYGGSYGAhlGAAIABgAAABaYAxYGJggWsAMAKCBwYXJxdWV0LWNwcC1hcnJv',
    'dyB2ZXJzaW9uIDI2LjAuMRk8HAAAHAAAHAAAAE0BAABQQVIx',
  ],
  'pages of the second version': [
    'UEFSMRUEFRAVFBWE+q8hPBUEFQASAAAIHAAAAAABAAAAFQYVChUKFbLkl6UGTBUGFQAVBhUQFQQVABIcAAAABgEBAwYVBBUYFRwV',
    '+Jby8Q48FQQVABIAAAwsAgAAAGFiAgAAAGNkFQYVChUKFfbrs/0KTBUGFQIVBhUQFQQVABIcAAAAAwMBAwIVBBUeFSIVraTtkQM8',
    'FQYVABIAAA84AQAAAGEBAAAAYgEAAABjFQYVEhUSFYqwsOgCTBUIFQIVBhUQFQYVBBIcAAAAAwID3wACAyQAFQQZbDUAGAZzY2hl',
    'bWEVBgAVAiUCGAF5ABUMJQIYAXQlAEwcAAAANQIYAWwVAhUGTDwAAAA1BBgEbGlzdBUCABUMJQIYB2VsZW1lbnQlAEwcAAAAFgYZ',
    'HBk8JgAcFQIZNQAGEBkYAXkVAhYGFnwWgAEmQiYIKSwVBBUAFQIAFQAVEBUCADwpBhkmAAYAAAAmABwVDBk1AAYQGRgBdBUCFgYW',
    'hgEWigEmzAEmiAEpLBUEFQAVAgAVABUQFQIAPBYIGQYZJgIEAAAAJgAcFQwZNQAGEBk4AWwEbGlzdAdlbGVtZW50FQIWCBaUARaY',
    'ASbcAiaSAiksFQQVABUCABUAFRAVAgA8FgYZJgYCGUYAAgAGAAAAFpYDFgYmCBaiAwAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNp',
    'b24gMjYuMC4xGTwcAAAcAAAcAAAATQEAAFBBUjE=',
  ],
};
const schema = parseSchema({ label: 'y', sparse: ['t', { column: 'l', multi: true }] }, 'schema.json');

async function keysOf(file: string, decoder?: 'hyparquet'): Promise<bigint[][]> {
  const format = parquetFormat(schema, decoder);
  const reader = readerOf<SchemaRows>({
    formatOf: () => format,
    grows: () => false,
    begin: (capacity) => new SchemaRows(schema, capacity),
  });
  const found: bigint[][] = [];
  for await (const { columns } of readBatches(reader, { files: [file], batch: 8 }))
    found.push(...columns!.map(({ keys }) => [...keys]));
  return found;
}

interface Page {
  /** Places of the header, of the bytes behind it, and of their end */
  at: number;
  body: number;
  end: number;
  crc: number;
}

async function pagesOf(content: Buffer): Promise<Page[]> {
  const { parquetHeader } = (await import('hyparquet/src/column.js' as string)) as {
    parquetHeader(reader: object): { crc: number; compressed_page_size: number };
  };
  const bytes = new Uint8Array(content);
  const pages: Page[] = [];
  for (const { columns } of parquetMetadata(bytes.buffer).row_groups)
    for (const { meta_data: meta } of columns) {
      const reader = { view: new DataView(bytes.buffer), offset: Number(meta!.dictionary_page_offset) };
      const end = reader.offset + Number(meta!.total_compressed_size);
      while (reader.offset < end) {
        const at = reader.offset;
        const { crc, compressed_page_size } = parquetHeader(reader);
        pages.push({ at, body: reader.offset, end: reader.offset + compressed_page_size, crc: crc >>> 0 });
        reader.offset += compressed_page_size;
      }
    }
  return pages;
}

test.each(Object.entries(FILES))('a page that does not have its checksum is refused: %s', async (_, text) => {
  const file = join(temporaryDirectory(), 'a.parquet');
  const content = Buffer.from(text.join(''), 'base64');
  const pages = await pagesOf(content);
  expect(pages).toHaveLength(6);
  for (const { body, end, crc } of pages) expect(crc32(content.subarray(body, end))).toBe(crc);
  writeFileSync(file, content);
  const take = vi.spyOn(loadNative(), 'takeColumns');
  const keys = await keysOf(file);
  expect(take).toHaveBeenCalled();
  expect(await keysOf(file, 'hyparquet')).toEqual(keys);
  expect(keys.map(({ length }) => length)).toEqual([3, 3]);
  const wrong = async (at: number) => {
    const damaged = Buffer.from(content);
    damaged[at]! ^= 1;
    writeFileSync(file, damaged);
    for (const decoder of [undefined, 'hyparquet'] as const)
      await expect(keysOf(file, decoder), `byte ${at}`).rejects.toMatchObject({
        code: 'BAD_DATA',
        message: expect.stringMatching(/^\S*a\.parquet: row group 1, column "[ytl]" .* checksum/),
      });
  };
  for (const { at, body, end } of pages) {
    for (let place = body; place < end; place++) await wrong(place);
    // The checksum is in the header, behind the type and two sizes of one byte each.
    await wrong(at + 7);
  }
  vi.restoreAllMocks();
});

test('the checksum of the addon is that of zlib', () => {
  const random = randomOf(1);
  for (let size = 0; size < 200; size++) {
    const bytes = Uint8Array.from({ length: size }, () => random(256));
    for (const from of [0, 3]) {
      const part = bytes.subarray(Math.min(from, size));
      expect(loadNative().crc32(part)).toBe(crc32(part));
    }
  }
});

test('the hash of frames of zstd has known values, whatever pieces it comes in', () => {
  const of = (...pieces: Uint8Array[]) => {
    const state = new BigUint64Array(XXH64_STATE_WORDS);
    return pieces.map((piece) => loadNative().xxh64(state, piece)).at(-1);
  };
  expect(of(Buffer.from(''))).toBe(0x51d8e999);
  expect(of(Buffer.from('abc'))).toBe(0xad770999);
  const bytes = Buffer.from(Array.from({ length: 200 }, (_, i) => i));
  for (let cut = 0; cut <= bytes.length; cut++)
    for (const end of [31, 32, 33, 64, 200])
      expect(of(bytes.subarray(0, Math.min(cut, end)), bytes.subarray(Math.min(cut, end), end))).toBe(
        of(bytes.subarray(0, end)),
      );
  const state = new BigUint64Array(1);
  expect(() => loadNative().xxh64(state, bytes)).toThrow('another length');
});
