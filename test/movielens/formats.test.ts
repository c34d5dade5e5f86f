/** Real ratings in four formats: the same bits, and through kills each sample counts once. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { beforeAll, expect, test } from 'vitest';
import { zstdStored } from '../data/zstd.js';
import { directory, job, MULTI, present, type Rating, ROWS, ratings, TEST, writeSchema } from './support.js';

type Column = keyof Rating;

function delimited(all: readonly Rating[], columns: readonly Column[], delimiter: string): string {
  const cell = (value: Rating[Column]) => (Array.isArray(value) ? value.join('|') : String(value ?? ''));
  const line = (rating: Rating) => columns.map((column) => cell(rating[column])).join(delimiter);
  return [columns.join(delimiter), ...all.map(line), ''].join('\n');
}

function parquet(all: readonly Rating[], columns: readonly Column[]): Uint8Array {
  const typeOf = (value: unknown) =>
    typeof value === 'string' ? { type: 'BYTE_ARRAY', converted_type: 'UTF8' } : { type: 'INT32' };
  const elements = columns.flatMap((name) => {
    const isList = Array.isArray(all[0]![name]);
    const example = all.flatMap((rating) => rating[name]).find((value) => value !== null);
    const optional = { repetition_type: 'OPTIONAL', ...typeOf(example) };
    if (!isList) return [{ name, ...optional }];
    return [
      { name, repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
      { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
      { name: 'element', ...optional },
    ];
  });
  const schema = [{ name: 'root', num_children: columns.length }, ...elements];
  const columnData = columns.map((name) => ({ name, data: all.map((rating) => rating[name]) }));
  const options = { columnData, schema, rowGroupSize: 20_000, codec: 'SNAPPY' };
  return new Uint8Array(parquetWriteBuffer(options as Parameters<typeof parquetWriteBuffer>[0]));
}

const FORMATS = ['a.parquet', 'a.jsonl', 'a.csv', 'a.tsv.zst'] as const;
let schema = '';

beforeAll(() => {
  if (!present) return;
  const all = ratings();
  const columns = Object.keys(all[0]!) as Column[];
  const contents = {
    'a.parquet': parquet(all, columns),
    'a.jsonl': all.map((rating) => `${JSON.stringify(rating)}\n`).join(''),
    'a.csv': delimited(all, columns, ','),
    'a.tsv.zst': zstdStored(Buffer.from(delimited(all, columns, '\t')), 100_000),
  };
  for (const name of FORMATS) writeFileSync(join(directory, name), contents[name]);
  schema = writeSchema('schema.json', MULTI);
});

const dataOf = (name: string) => ['--data', join(directory, name), '--schema', schema];

test.skipIf(!present)(
  'every format gives the same bits, and a PS is killed in each',
  async () => {
    const digests = new Map<string, unknown>();
    for (const name of FORMATS) {
      const flags = ['--workers', '1', '--deterministic', '--test', TEST, '--kill', 'ps@50%'];
      const { digest, testAuc, failures } = await job([...dataOf(name), ...flags], ROWS);
      expect(failures.length).toBeGreaterThan(0);
      digests.set(name, { digest, testAuc });
    }
    const [first, ...others] = digests.values();
    expect(first).toMatchObject({ digest: expect.anything(), testAuc: expect.any(Number) });
    expect(others).toEqual(others.map(() => first));
  },
  900_000,
);

test.skipIf(!present).each(FORMATS)(
  '%s: a worker and a PS are killed, and each sample counts once',
  async (name) => {
    const kills = ['--kill', 'worker@30%', '--kill', 'ps@60%'];
    const { failures } = await job([...dataOf(name), '--workers', '2', ...kills], ROWS);
    expect(failures.length).toBeGreaterThan(1);
  },
  300_000,
);
