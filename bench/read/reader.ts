/**
 * The reader of `bench read`, as a process of its own: as in a worker, nothing else is in its memory. Answers
 * each file with the CPU seconds that reading it took.
 */
import { fileSource } from '../../src/data/file-source.js';
import { openReader } from '../../src/data/open.js';
import { readAll } from '../../src/data/source.js';
import type { ReadFile } from './files.js';

export const BATCH = 2048;

export interface ReaderAnswer {
  rows: number;
  seconds: number;
}

async function read({ path, schema }: ReadFile): Promise<ReaderAnswer> {
  const source = fileSource(openReader(schema), [path]);
  const before = process.cpuUsage();
  let rows = 0;
  for await (const { size } of readAll(source, BATCH)) rows += size;
  const { user, system } = process.cpuUsage(before);
  return { rows, seconds: (user + system) / 1e6 };
}

if (process.send) {
  process.on('disconnect', () => process.exit(0));
  process.on('message', async (file: ReadFile) => process.send!(await read(file)));
}
