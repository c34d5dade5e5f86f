/**
 * The addon's parser of lines against the one in TypeScript, on lines that hold whatever a file may hold: the
 * same bits in every batch, or the same error. With the vector code and without.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { describe as describeError } from '../../src/common/errors.js';
import type { Batch } from '../../src/data/batch.js';
import { CriteoRows, categoryKey, criteo, missingKey } from '../../src/data/criteo.js';
import { delimitedParser } from '../../src/data/delimited.js';
import { lineFormat } from '../../src/data/line-format.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import { type DataReader, readerOf } from '../../src/data/reader.js';
import { SchemaRows } from '../../src/data/rows.js';
import type { Schema } from '../../src/data/schema.js';
import { loadNative } from '../../src/engine/native.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { readBatches } from './read.js';

type Random = (below: number) => number;

function randomOf(seed: number): Random {
  let state = Math.imul(seed + 1, 0x9e3779b1) >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const bytesOf = (array: ArrayBufferView | undefined) =>
  array && Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString('hex');

/** Everything that a batch holds, bit for bit. */
function plain({ size, labels, dense, keys, columns, targets, weights, times }: Batch) {
  return {
    size,
    arrays: [labels, dense, keys, targets, weights, times].map(bytesOf),
    columns: columns?.map((each) => [each.keys, each.offsets, each.weights].map(bytesOf)),
  };
}

/** All batches of a file, and the error after them. */
async function outcome(reader: DataReader, file: string, batch: number): Promise<unknown[]> {
  const seen: unknown[] = [];
  try {
    for await (const each of readBatches(reader, { files: [file], batch })) seen.push(plain(each));
  } catch (error) {
    seen.push(describeError(error));
  }
  return seen;
}

describe.each(['auto', 'scalar'])('kernels: %s', (isa) => {
  beforeAll(() => void loadNative().forceIsa(isa));
  afterAll(() => void loadNative().forceIsa('auto'));

  const SPARSE = [
    { column: 'id', key: 'integer', table: 't' },
    { column: 'id', name: 'own', key: 'integer' },
    { column: 'hash', key: 'hash' },
    { column: 'hash', name: 'shared', key: 'hash', table: 't' },
    'text',
    { column: 'list', multi: true, limit: 3 },
    { column: 'list', name: 'all', multi: true, separator: '||' },
    { column: 'seen', key: 'integer', multi: true, separator: 'é', weights: 'shares' },
  ];
  const written = {
    label: ['clicked', { column: 'rating', atLeast: 3.5 }],
    dense: [
      'number',
      { column: 'count', transform: 'log1p' },
      { column: 'number', name: 'bucket', transform: { bucketise: [-1, 0.5, 1e3] } },
      { column: 'count', name: 'normal', transform: { normalise: { mean: 3.3, std: 0.7 } } },
    ],
    sparse: SPARSE,
    weight: 'weight',
    time: 'time',
  };
  const HEADER = [
    ...['extra', 'clicked', 'rating', 'number', 'count', 'id', 'hash', 'text', 'list', 'seen', 'shares'],
    ...['weight', 'time'],
  ];
  const schema = parseSchema(written, 'schema.json');

  /** Cells that are mostly right, and cells that may be wrong. */
  const WRONG = [
    '',
    ' ',
    '-',
    '.',
    'x',
    '0x10',
    'Infinity',
    'NaN',
    '1e999',
    '1e-999',
    '--1',
    '1 ',
    '\0',
    '\u2028',
  ];
  const NUMBERS = [
    ...['0', '-0', '+1.5', '.5', '5.', '1e3', '2E-7', '3.4e38', '-3.4e38', '0.1', '4096', '16384'],
    ...['123456789012345678901', '0.30000000000000004', '9007199254740993', '-7'],
    ...['0000000000000000000000001', '5e-324', '1234567.125', '99999999', '123456789'],
  ];
  const pick = <T>(random: Random, list: readonly T[]): T => list[random(list.length)]!;
  const digits = (random: Random, most: number, radix = 10) =>
    Array.from({ length: 1 + random(most) }, () => random(radix).toString(radix)).join('');
  const numberText = (random: Random) =>
    random(3) === 0 ? pick(random, NUMBERS) : String((random(2 ** 30) - 2 ** 29) / 2 ** random(34));
  const wordText = (random: Random) =>
    pick(random, [
      'a',
      'Paris',
      '東京',
      'São Paulo',
      '😀',
      '\uFEFF',
      'x'.repeat(70),
      '\ud800',
      '"',
      'a"b',
      '|',
    ]);
  const list = (random: Random, separator: string, make: () => string) =>
    Array.from({ length: random(6) }, make).join(separator);

  function cells(random: Random, wild: number): string[] {
    const odd = (text: string, others: readonly string[] = WRONG) =>
      random(wild) === 0 ? pick(random, others) : text;
    const count = random(5);
    const several = (make: () => string) => Array.from({ length: count }, make).join('é');
    return [
      odd('', ['"', '"a\tb"', '"a,b"', '""', 'a\r']),
      odd(pick(random, ['0', '1', 'true', 'false', '1.0', '0e5'])),
      odd(numberText(random)),
      odd(numberText(random)),
      odd(random(2) === 0 ? String(random(20_000) - 100) : numberText(random)),
      odd(random(9) === 0 ? '' : digits(random, 18), [
        ...WRONG,
        '9223372036854775807',
        '9223372036854775808',
      ]),
      odd(random(9) === 0 ? '' : digits(random, 16, 16), [...WRONG, 'ABCDEF', 'g', '1'.repeat(17)]),
      random(4) === 0 ? odd('', [wordText(random)]) : `word${random(100)}`,
      odd(
        list(random, '|', () => digits(random, 3)),
        ['a||b', '|', 'a|||b'],
      ),
      odd(several(() => digits(random, 9))),
      odd(several(() => numberText(random))),
      odd(String(random(100) / 8), [...WRONG, '-1', '-0']),
      odd(numberText(random)),
    ];
  }

  function file(seed: number, delimiter: string, name: string): string {
    const random = randomOf(seed);
    const wild = 5 + 40 * random(20);
    const end = pick(random, ['\n', '\r\n']);
    const lines = [HEADER, ...Array.from({ length: 1 + random(120) }, () => cells(random, wild))];
    let bytes = Buffer.from(lines.map((line) => line.join(delimiter)).join(end) + pick(random, ['', end]));
    // Bytes that are no text.
    if (random(8) === 0) bytes[HEADER.join('').length + 20 + random(bytes.length)] = 128 + random(128);
    if (random(8) === 0) bytes = bytes.subarray(0, random(bytes.length));
    const path = join(temporaryDirectory(), name);
    writeFileSync(path, bytes);
    return path;
  }

  /** `single`: every line goes through TypeScript. */
  function readerFor(of: Schema, delimiter: string, single: boolean): DataReader {
    const parserOf = delimitedParser(of, delimiter);
    const format = lineFormat(async (path) => {
      const { addAll, ...parser } = await parserOf(path);
      expect(addAll).toBeDefined();
      return single ? parser : { ...parser, addAll: addAll! };
    });
    return readerOf({
      formatOf: () => format,
      grows: () => true,
      begin: (capacity) => new SchemaRows(of, capacity),
    });
  }

  test.each([
    ['a.tsv', '\t'],
    ['a.csv', ','],
  ])('lines of a schema: %s', async (name, delimiter) => {
    let errors = 0;
    let batches = 0;
    for (let seed = 0; seed < 60; seed++) {
      const path = file(seed, delimiter, name);
      const batch = 1 + (seed % 37);
      const [ours, expected] = [
        await outcome(readerFor(schema, delimiter, false), path, batch),
        await outcome(readerFor(schema, delimiter, true), path, batch),
      ];
      expect(ours, `seed ${seed}`).toEqual(expected);
      errors += expected.filter((each) => typeof each === 'string').length;
      batches += expected.length;
    }
    expect(errors).toBeGreaterThan(10);
    expect(batches).toBeGreaterThan(150);
  });

  /** A line of the layout as a row, parsed the slow way. */
  function criteoRow(line: string) {
    const [label, ...fields] = line.split('\t');
    const integer = (text: string) => Math.fround(Math.log1p(Math.max(0, Number(text))));
    const key = (text: string, column: number) =>
      text === '' ? missingKey(column) : categoryKey(column, Number.parseInt(text, 16));
    return {
      label: Number(label),
      dense: fields.slice(0, 13).map(integer),
      keys: fields.slice(13).map(key),
    };
  }

  test('lines of the Criteo layout', async () => {
    for (let seed = 0; seed < 20; seed++) {
      const random = randomOf(seed);
      const integer = () =>
        pick(random, ['', '-1', '-0', '0', '007', '99999999', '123456789', digits(random, 15)]);
      const category = () =>
        random(9) === 0 ? '' : digits(random, 8, 16).replace(/[a-c]/g, (x) => x.toUpperCase());
      const lines = Array.from({ length: 1 + random(300) }, () =>
        [
          String(random(2)),
          ...Array.from({ length: 13 }, integer),
          ...Array.from({ length: 26 }, category),
        ].join('\t'),
      );
      const path = join(temporaryDirectory(), 'a.tsv');
      writeFileSync(path, lines.join('\n') + pick(random, ['', '\n']));
      const rows: unknown[] = [];
      for await (const { size, labels, dense, keys } of readBatches(criteo, {
        files: [path],
        batch: 1 + random(40),
      }))
        for (let row = 0; row < size; row++)
          rows.push({
            label: labels[row],
            dense: [...dense.subarray(row * 13, (row + 1) * 13)],
            keys: [...keys.subarray(row * 26, (row + 1) * 26)],
          });
      expect(rows, `seed ${seed}`).toEqual(lines.map(criteoRow));
    }
  });

  test('every byte that is put in the place of another one in a line of the Criteo layout', async () => {
    const line = ['1', '12', '-3', ...Array(11).fill('4'), ...Array(26).fill('0aF9')].join('\t');
    const path = join(temporaryDirectory(), 'a.tsv');
    const fits = (text: string) =>
      /^[01](\t(-?\d{1,15})?){13}(\t[\da-fA-F]{0,8}){26}$/.test(text.replace(/\r$/, ''));
    let refused = 0;
    for (const at of [0, 1, 2, 3, 5, 6, 20, 40, 41, 60, line.length - 1])
      for (let byte = 0; byte < 256; byte++) {
        // A newline makes two lines.
        if (byte === 10) continue;
        const bytes = Buffer.from(`${line}\n`, 'latin1');
        bytes[at] = byte;
        const right = fits(bytes.toString('latin1', 0, line.length));
        const { lines } = new CriteoRows(2).addAll(bytes, 0, bytes.length);
        expect(lines, `byte ${byte} at ${at}`).toBe(right ? 1 : 0);
        if (right || ++refused % 32 !== 0) continue;
        writeFileSync(path, bytes);
        expect(await outcome(criteo, path, 4)).toEqual([expect.stringContaining(`${path}:1:`)]);
      }
  });
});
