/** Answers of the reader to files of tests, kept for readers of other languages. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { openReader } from '../../../src/data/open.js';
import type { Schema } from '../../../src/data/schema.js';
import { temporaryDirectory } from '../../training/models/rows.js';
import { readBatches } from '../read.js';
import { keepOdd, type OddAnswer } from './kept.js';

/** Batches of a file, or the error without the name of the file. */
export async function readOdd(schema: Schema, name: string, content: Uint8Array): Promise<OddAnswer> {
  const answer = await answerOf(schema, name, content);
  keepOdd(schema, name, content, answer);
  return answer;
}

async function answerOf(schema: Schema, name: string, content: Uint8Array): Promise<OddAnswer> {
  const file = join(temporaryDirectory(), name);
  writeFileSync(file, content);
  const keys: bigint[] = [];
  const dense: number[] = [];
  const labels: number[] = [];
  try {
    for await (const batch of readBatches(openReader(schema), { files: [file], batch: 8 })) {
      labels.push(...batch.labels);
      dense.push(...batch.dense);
      for (const column of batch.columns ?? []) keys.push(...column.keys);
    }
    expect(await openReader(schema).countRows([file])).toBe(labels.length);
    return { keys, dense, labels };
  } catch (error) {
    return { error: (error as Error).message.replace(file, ''), code: (error as { code?: string }).code };
  }
}
