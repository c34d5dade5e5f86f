/**
 * Keeps the odd files that tests read, with the answers of the reader, for readers of other languages: in the
 * folder of KINTSUGI_ODD_FILES, if that is set (python/tests/test_odd_files.py).
 */
import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseSchema } from '../../../src/data/parse-schema.js';
import type { Schema } from '../../../src/data/schema.js';

/** The answer of a reader to a file: all keys, numbers and labels, or an error without its name. */
export interface OddAnswer {
  keys?: readonly bigint[];
  dense?: readonly number[];
  labels?: readonly number[];
  error?: string;
  code?: string | undefined;
}

/** Schemas as they were written. */
const written = new WeakMap<Schema, object>();

export function schemaOf(json: object): Schema {
  const schema = parseSchema(json, 'schema.json');
  written.set(schema, json);
  return schema;
}

export function keepOdd(schema: Schema, name: string, content: Uint8Array, answer: OddAnswer): void {
  const folder = process.env.KINTSUGI_ODD_FILES;
  if (folder === undefined) return;
  const place = join(folder, randomUUID());
  mkdirSync(place, { recursive: true });
  writeFileSync(join(place, name), content);
  const exact = (_: string, value: unknown) => (typeof value === 'bigint' ? String(value) : value);
  const kept = { name, schema: written.get(schema), answer };
  writeFileSync(join(place, 'kept.json'), JSON.stringify(kept, exact));
}
