/**
 * Files that people have: each odd cell has one right answer, the same keys and numbers or the same error, in
 * every format.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { describe, expect, test } from 'vitest';
import { keyOf } from '../../src/data/keys.js';
import { openReader } from '../../src/data/open.js';
import type { Schema } from '../../src/data/schema.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { readOdd } from './odd/answer.js';
import { schemaOf } from './odd/kept.js';

const ENDINGS = ['csv', 'tsv', 'jsonl', 'parquet'] as const;
type Ending = (typeof ENDINGS)[number];

/** A cell of the column `c` in each format. A format that cannot hold it has none. */
interface OddCell {
  name: string;
  /** Text of CSV and TSV, as bytes or as UTF-8 */
  text?: string | Uint8Array;
  /** The value of the field `c` in a line of JSON */
  json?: string | Uint8Array;
  parquet?: { element: object; value: unknown };
}

const UTF8 = { type: 'BYTE_ARRAY', converted_type: 'UTF8' } as const;
const BYTES = { type: 'BYTE_ARRAY' } as const;
const INT64 = { type: 'INT64' } as const;
const DOUBLE = { type: 'DOUBLE' } as const;
const fixed = (length: number) => ({ type: 'FIXED_LEN_BYTE_ARRAY', type_length: length }) as const;

function parquet(element: object, values: readonly unknown[]): Uint8Array {
  const schema = [
    { name: 'root', num_children: 2 },
    { name: 'y', type: 'INT32', repetition_type: 'OPTIONAL' },
    { name: 'c', repetition_type: 'OPTIONAL', ...element },
  ];
  const columnData = [
    { name: 'y', data: values.map(() => 1) },
    { name: 'c', data: [...values] },
  ];
  const all = { columnData, schema } as unknown as Parameters<typeof parquetWriteBuffer>[0];
  return new Uint8Array(parquetWriteBuffer(all));
}

/** A file with one sample, whose column `c` has the cell; undefined: the format cannot hold it. */
function contentOf(ending: Ending, cell: OddCell): Uint8Array | undefined {
  if (ending === 'parquet') return cell.parquet && parquet(cell.parquet.element, [cell.parquet.value]);
  const text = ending === 'jsonl' ? cell.json : cell.text;
  if (text === undefined) return undefined;
  const [before, after] = { csv: ['y,c\n1,', '\n'], tsv: ['y\tc\n1\t', '\n'], jsonl: ['{"y":1,"c":', '}\n'] }[
    ending
  ] as [string, string];
  return Buffer.concat([Buffer.from(before), Buffer.from(text as Uint8Array), Buffer.from(after)]);
}

const sparse = (column: object) => schemaOf({ label: 'y', sparse: [{ column: 'c', ...column }] });
const dense = schemaOf({ label: 'y', dense: ['c'], sparse: ['y'] });

const INTEGER = sparse({ key: 'integer', table: 't' });
const TEXT = sparse({ table: 't' });
const TEXT_UTF8 = sparse({ table: 't', encoding: 'utf8' });
const ids = (text: string) => ({ text, json: text, parquet: { element: INT64, value: BigInt(text) } });

/** Reads the cell in every format that can hold it. */
async function everywhere(schema: Schema, cell: OddCell) {
  const answers: Partial<Record<Ending, Awaited<ReturnType<typeof readOdd>>>> = {};
  for (const ending of ENDINGS) {
    const content = contentOf(ending, cell);
    if (content) answers[ending] = await readOdd(schema, `a.${ending}`, content);
  }
  return answers;
}

async function expectKeys(schema: Schema, cell: OddCell, keys: readonly bigint[]): Promise<void> {
  for (const [ending, answer] of Object.entries(await everywhere(schema, cell)))
    expect({ ending, ...answer }).toMatchObject({ ending, keys });
}

async function expectError(schema: Schema, cell: OddCell, text: string): Promise<void> {
  for (const [ending, answer] of Object.entries(await everywhere(schema, cell)))
    expect({ ending, ...answer }).toMatchObject({
      ...{ ending, code: 'BAD_DATA' },
      error: expect.stringContaining(text),
    });
}

describe('integers are the ids that the file has', () => {
  test.each([
    ['0', 0n],
    ['9007199254740993', 9007199254740993n],
    ['9223372036854775807', 2n ** 63n - 1n],
    ['-2', 2n ** 64n - 2n],
    ['-9223372036854775807', 2n ** 63n + 1n],
  ])('%s', async (text, key) => {
    await expectKeys(INTEGER, { name: text, ...ids(text) }, [key]);
  });

  test.each([
    ['9223372036854775809', 2n ** 63n + 1n],
    ['18446744073709551614', 2n ** 64n - 2n],
  ])('%s, which a signed integer cannot hold', async (text, key) => {
    const element = { type: 'INT64', converted_type: 'UINT_64' };
    const cell = { text, json: text, parquet: { element, value: BigInt(text) } };
    await expectKeys(INTEGER, { name: text, ...cell }, [key]);
  });

  test.each(['-1', '-9223372036854775808'])('%s is no id: its key is reserved', async (text) => {
    const range = 'from -2^63 + 1 to 2^64 - 2, and neither -1 nor 2^63';
    const expected = `column "c" must be an integer ${range} or empty`;
    await expectError(INTEGER, { name: text, ...ids(text) }, expected);
  });

  test.each(['18446744073709551615', '9223372036854775808', '18446744073709551616'])(
    '%s is refused with its digits',
    async (text) => {
      const cell = { name: text, text, parquet: { element: UTF8, value: text } };
      await expectError(INTEGER, cell, `or empty, not "${text}"`);
      await expectError(INTEGER, { name: text, json: text }, `or empty, not ${text}`);
    },
  );

  test('text keys of long integers are their digits', async () => {
    const text = '12345678901234567890';
    await expectKeys(TEXT, { name: 'json', json: text, text, parquet: { element: UTF8, value: text } }, [
      keyOf(TEXT.sparse[0]!, text),
    ]);
  });

  test('hash64 has all its bits, and hash has 63', async () => {
    const cell = { name: 'hash', text: 'F000000000000001', json: '"f000000000000001"' };
    await expectKeys(sparse({ key: 'hash64', table: 't' }), cell, [0xf000000000000001n]);
    await expectKeys(sparse({ key: 'hash', table: 't' }), cell, [0x7000000000000001n]);
    const reserved = { name: 'reserved', text: 'ffffffffffffffff', json: '"8000000000000000"' };
    await expectError(sparse({ key: 'hash64', table: 't' }), reserved, 'up to 16 hexadecimal digits, and');
  });
});

describe('a number is its own hash, and text has hexadecimal digits', () => {
  const HASH64 = sparse({ key: 'hash64', table: 't' });
  const HASH = sparse({ key: 'hash', table: 't' });
  const UINT64 = { type: 'INT64', converted_type: 'UINT_64' } as const;
  const INT8 = { type: 'INT32', converted_type: 'INT_8' } as const;

  test.each([
    ['12', 12n],
    ['255', 255n],
    ['0', 0n],
    ['9007199254740993', 9007199254740993n],
    ['9223372036854775807', 2n ** 63n - 1n],
  ])('%s', async (json, key) => {
    const parts = [
      { element: INT64, value: key },
      { element: UINT64, value: key },
    ] as const;
    const small = [
      { element: DOUBLE, value: Number(key) },
      { element: INT8, value: Number(key) },
    ];
    for (const parquet of key < 128n ? [...parts, ...small] : parts) {
      await expectKeys(HASH64, { name: json, json, parquet }, [key]);
      await expectKeys(HASH, { name: json, json, parquet }, [key]);
    }
    const text = key.toString(16);
    await expectKeys(
      HASH64,
      { name: 'text', text, json: `"${text}"`, parquet: { element: UTF8, value: text } },
      [key],
    );
  });

  test('all 64 bits', async () => {
    for (const key of [2n ** 63n + 1n, 2n ** 64n - 2n]) {
      const cell = { name: `${key}`, json: `${key}`, parquet: { element: UINT64, value: key } };
      await expectKeys(HASH64, cell, [key]);
      await expectKeys(HASH, cell, [key & (2n ** 63n - 1n)]);
    }
  });

  test('numbers that are no hash are refused', async () => {
    const expected = 'column "c" must be an integer from 0 to 2^64 - 2 and not 2^63';
    for (const value of [-1n, -12n])
      await expectError(
        HASH64,
        { name: 'minus', json: `${value}`, parquet: { element: INT64, value } },
        expected,
      );
    for (const value of [2n ** 63n, 2n ** 64n - 1n])
      await expectError(
        HASH64,
        { name: 'own', json: `${value}`, parquet: { element: UINT64, value } },
        expected,
      );
    for (const value of [1.5, -1])
      await expectError(
        HASH64,
        { name: `${value}`, json: `${value}`, parquet: { element: DOUBLE, value } },
        expected,
      );
    const beyond = { name: '2^53', parquet: { element: DOUBLE, value: 2 ** 53 } };
    await expectError(HASH64, beyond, expected);
  });
});

describe('bytes are hashed, never characters', () => {
  const latin = Buffer.from([0x63, 0x61, 0x66, 0xe9]);
  const quoted = Buffer.concat([Buffer.from('"'), latin, Buffer.from('"')]);
  const key = keyOf(TEXT.sparse[0]!, latin);

  test('text that is no UTF-8', async () => {
    expect(key).not.toBe(keyOf(TEXT.sparse[0]!, 'caf\uFFFD'));
    const cell = { name: 'latin', text: latin, json: quoted, parquet: { element: BYTES, value: latin } };
    await expectKeys(TEXT, cell, [key]);
    // A quote leaves the line to another parser.
    await expectKeys(TEXT, { name: 'quoted', text: quoted }, [key]);
    await expectKeys(TEXT, { name: 'called UTF-8', parquet: { element: UTF8, value: latin } }, [key]);
    await expectError(TEXT_UTF8, cell, 'column "c" must be text in UTF-8 ("encoding": "utf8") or empty');
  });

  test('a line of JSON with both, escapes and bytes that are no UTF-8', async () => {
    const json = Buffer.concat([Buffer.from('"\\u00e9\\n\\ud83d\\ude00'), latin, Buffer.from('"')]);
    const bytes = Buffer.concat([Buffer.from('é\n😀'), latin]);
    await expectKeys(TEXT, { name: 'both', json }, [keyOf(TEXT.sparse[0]!, bytes)]);
    await expectError(TEXT, { name: 'half', json: '"\\ud83d"' }, 'text without half a pair of surrogates');
  });

  test('100,000 ids of four bytes are 100,000 keys, with or without a fixed length', async () => {
    const values = Array.from({ length: 100_000 }, (_, i) => {
      const bytes = Buffer.alloc(4);
      bytes.writeUInt32LE(Math.imul(i, 2654435761) >>> 0);
      return bytes;
    });
    const whole = await readOdd(TEXT, 'a.parquet', parquet(BYTES, values));
    expect(new Set(whole.keys).size).toBe(100_000);
    const same = await readOdd(TEXT, 'b.parquet', parquet(fixed(4), values));
    expect(same.keys).toEqual(whole.keys);
  });

  test('binary of a fixed length is one value of several, never one for each byte', async () => {
    const several = sparse({ multi: true, table: 't' });
    const value = Buffer.from('a|b|');
    await expectKeys(several, { name: 'fixed', parquet: { element: fixed(4), value } }, [
      keyOf(TEXT.sparse[0]!, value),
    ]);
    const parts = ['a', 'b'].map((each) => keyOf(TEXT.sparse[0]!, each));
    const text = { text: 'a|b', json: '"a|b"', parquet: { element: BYTES, value: Buffer.from('a|b') } };
    await expectKeys(several, { name: 'text', ...text }, parts);
    const odd = Buffer.concat([latin, Buffer.from('|b')]);
    await expectKeys(several, { name: 'bytes', text: odd, parquet: { element: BYTES, value: odd } }, [
      key,
      parts[1]!,
    ]);
  });

  test('a mark of the byte order inside a file is text', async () => {
    const text = '\uFEFFa';
    const cell = { name: 'mark', text, json: `"${text}"`, parquet: { element: UTF8, value: text } };
    await expectKeys(TEXT, cell, [keyOf(TEXT.sparse[0]!, text)]);
  });

  test('bytes that are digits are numbers, as text is', async () => {
    const value = Buffer.from('42');
    await expectKeys(INTEGER, { name: 'key', parquet: { element: BYTES, value } }, [42n]);
    const answer = await readOdd(dense, 'a.parquet', parquet(BYTES, [Buffer.from('1.5')]));
    expect(answer.dense).toEqual([1.5]);
  });
});

describe('numbers', () => {
  const numbers: [string, OddCell][] = [
    ['NaN', { name: 'NaN', text: 'NaN', parquet: { element: DOUBLE, value: Number.NaN } }],
    ['an infinity', { name: 'inf', text: 'Infinity', parquet: { element: DOUBLE, value: 1 / 0 } }],
    ['inf', { name: 'inf', text: 'inf', json: '"inf"', parquet: { element: UTF8, value: '-inf' } }],
    ['1_000', { name: '1_000', text: '1_000', json: '"1_000"', parquet: { element: UTF8, value: '1_000' } }],
    ['a lone minus', { name: '-', text: '-', json: '"-"', parquet: { element: UTF8, value: '-' } }],
    ['blanks', { name: ' 5 ', text: ' 5 ', json: '" 5 "', parquet: { element: UTF8, value: ' 5 ' } }],
    ['1e400', { name: '1e400', text: '1e400', json: '1e400', parquet: { element: UTF8, value: '1e400' } }],
    ['1e39', { name: '1e39', text: '1e39', json: '1e39', parquet: { element: DOUBLE, value: 1e39 } }],
    ['a hexadecimal number', { name: 'hex', text: '0x10', json: '"0x10"' }],
  ];

  test.each(numbers)('%s is BAD_DATA as an input', async (_, cell) => {
    await expectError(dense, cell, 'column "c" must be a number or empty, not ');
  });

  test.each(numbers)('%s is BAD_DATA as a label', async (_, cell) => {
    const labels = schemaOf({ label: { column: 'c', atLeast: 1 }, dense: ['y'], sparse: ['y'] });
    // A label that is too large for a float is still at least 1.
    if (cell.name !== '1e39') await expectError(labels, cell, 'column "c" must be a number, not ');
  });

  test('an empty label is BAD_DATA', async () => {
    const labels = schemaOf({ label: 'c', sparse: ['y'] });
    const empty = { name: 'empty', text: '', json: '""', parquet: { element: UTF8, value: '' } };
    await expectError(labels, empty, 'column "c" must be 0 or 1, not ""');
    await expectError(labels, { name: 'null', json: 'null' }, 'column "c" must be 0 or 1, not null');
    const floats = parquet(DOUBLE, [null, Number.NaN]);
    expect(await readOdd(labels, 'a.parquet', floats)).toMatchObject({ code: 'BAD_DATA' });
  });

  test.each(['true', 'True', 'false', 'False'])('the label %s, as pandas writes it', async (word) => {
    const labels = schemaOf({ label: 'c', sparse: ['y'] });
    const all = await everywhere(labels, {
      ...{ name: word, text: word, json: `"${word}"` },
      parquet: { element: UTF8, value: word },
    });
    for (const answer of Object.values(all)) expect(answer.labels).toEqual([/rue/.test(word) ? 1 : 0]);
  });

  test('a list where one value was declared names "multi"', async () => {
    const names = `column "c" must be one value ("multi": true takes a list)`;
    await expectError(INTEGER, { name: 'list', json: '[1,2]' }, names);
    await expectError(INTEGER, { name: 'long', json: '[12345678901234567890]' }, names);
    await expectError(dense, { name: 'list', json: '[12345678901234567890]' }, 'column "c" must be a number');
    const element = [
      { name: 'root', num_children: 2 },
      { name: 'y', type: 'INT32', repetition_type: 'OPTIONAL' },
      { name: 'c', repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
      { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
      { name: 'element', repetition_type: 'OPTIONAL', type: 'INT64' },
    ];
    const columnData = [
      { name: 'y', data: [1] },
      { name: 'c', data: [[1n, 2n]] },
    ];
    const all = { columnData, schema: element } as unknown as Parameters<typeof parquetWriteBuffer>[0];
    const answer = await readOdd(INTEGER, 'a.parquet', new Uint8Array(parquetWriteBuffer(all)));
    expect(answer).toMatchObject({ code: 'BAD_DATA', error: expect.stringContaining(names) });
  });
});

describe('lines', () => {
  const LINES = {
    csv: ['y,c\n', '1,5\n'],
    tsv: ['y\tc\n', '1\t5\n'],
    jsonl: ['', '{"y":1,"c":5}\n'],
  } as const;
  const lines = Object.entries(LINES);

  test.each(lines)(
    '%s: a mark of the byte order before the first line is none',
    async (ending, [head, line]) => {
      expect(await readOdd(INTEGER, `a.${ending}`, Buffer.from(`\uFEFF${head}${line}`))).toMatchObject({
        keys: [5n],
      });
    },
  );

  test('a file without a header, too', async () => {
    const schema = schemaOf({
      label: 'y',
      sparse: [{ column: 'c', key: 'integer', table: 't' }],
      header: ['y', 'c'],
    });
    expect(await readOdd(schema, 'a.csv', Buffer.from('\uFEFF1,5\n1,6\n'))).toMatchObject({
      keys: [5n, 6n],
    });
  });

  test.each(lines)('%s: blank lines at the end are no rows', async (ending, [head, line]) => {
    for (const end of ['\n', '\r\n', '\n\r\n\n', '\r', '\r\r\n'])
      expect(await readOdd(INTEGER, `a.${ending}`, Buffer.from(`${head}${line}${line}${end}`))).toMatchObject(
        {
          keys: [5n, 5n],
        },
      );
  });

  test.each(lines)(
    '%s: whatever Windows has before a newline is none of the cells',
    async (ending, [head, line]) => {
      const text = `${head}${line}${line}`;
      const plain = await readOdd(TEXT, `a.${ending}`, Buffer.from(text));
      expect(plain.keys).toHaveLength(2);
      // A quote makes the reader take the line by itself.
      const quoted = `${head}${line}${line.replace(/(?<=[,\t])5/, '"5"')}`;
      for (const one of [text, quoted])
        for (const end of ['\r\n', '\r\r\n', '\r\r\r\n'])
          expect(await readOdd(TEXT, `a.${ending}`, Buffer.from(one.replaceAll('\n', end)))).toEqual(plain);
    },
  );

  test.each(lines)('%s: a blank line before others is BAD_DATA', async (ending, [head, line]) => {
    const number = head === '' ? 2 : 3;
    for (const blank of ['\n', '\r\n', '\n\n', '\r\r\n'])
      expect(
        await readOdd(INTEGER, `a.${ending}`, Buffer.from(`${head}${line}${blank}${line}`)),
      ).toMatchObject({
        code: 'BAD_DATA',
        error: `:${number}: a blank line; only the end of a file may have some`,
      });
  });

  test('a blank line at the end of a range is BAD_DATA if lines follow in the next one', async () => {
    const file = join(temporaryDirectory(), 'a.csv');
    writeFileSync(file, 'y,c\n1,5\n\n1,6\n');
    const read = async (begin: number, end: number) => {
      for await (const _ of openReader(INTEGER).readRange({ file, begin, end, batch: 8 }));
    };
    await expect(read(0, 9)).rejects.toMatchObject({ message: expect.stringContaining(':3: a blank line') });
    await read(9, 13);
  });

  test('two columns of one name are BAD_DATA in every format', async () => {
    const twice = 'column "c" more than once';
    for (const [ending, content] of [
      ['csv', 'y,c,c\n1,5,6\n'],
      ['tsv', 'y\tc\tc\n1\t5\t6\n'],
    ] as const)
      expect((await readOdd(INTEGER, `a.${ending}`, Buffer.from(content))).error).toContain(twice);
    const json = await readOdd(INTEGER, 'a.jsonl', Buffer.from('{"y":1,"c":5,"c":6}\n'));
    expect(json).toMatchObject({
      code: 'BAD_DATA',
      error: ':1: the object has the field "c" more than once',
    });
    const inside = '{"y":1,"c":5,"other":{"c":6},"text":"\\"c\\":7"}\n';
    expect(await readOdd(INTEGER, 'a.jsonl', Buffer.from(inside))).toMatchObject({ keys: [5n] });
  });
});
