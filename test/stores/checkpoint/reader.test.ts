/** The reader of examples/ knows the format from its description alone; it must agree with the writer. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import type { SavedTable } from '../../../src/protocol/checkpoints.js';
import { publishCheckpoint } from '../../../src/stores/checkpoint/checkpoints.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import type { TableToWrite } from '../../../src/stores/checkpoint/segment.js';
import { draftOf, rows, shardOf, store, TABLES, temporaryDirectory } from './support.js';

const READER = fileURLToPath(new URL('../../../examples/read-checkpoint.mjs', import.meta.url));

function read(...args: string[]): { status: number | null; stderr: string; rows: unknown[] } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [READER, ...args], { encoding: 'utf8' });
  const lines = stdout.split('\n').filter((line) => line !== '');
  return { status, stderr, rows: lines.map((line) => JSON.parse(line) as unknown) };
}

/** Floats that JSON keeps: row after row counts on from `first`. */
function counted(table: SavedTable, keys: bigint[], first: number): TableToWrite {
  const made = rows(table, keys, () => 0);
  for (const array of [...made.values, ...made.state]) array.set(array.map((_, i) => first + i));
  return made;
}

test('the reader prints the rows of the newest checkpoint, or of the one that is asked for', async () => {
  const directory = temporaryDirectory();
  const place = new DirectoryPlace(directory);
  const [items, other] = TABLES as [SavedTable, SavedTable];
  const to = { number: 1, attempt: '0123abcd', shard: 0, part: 0, position: 1 };
  const big = 2n ** 64n - 2n;
  const first = await store(place, to, [counted(items, [1n, big, 3n], 0), counted(other, [7n], 0.5)], []);
  const still = await store(place, { ...to, shard: 1 }, [], []);
  await publishCheckpoint(place, draftOf(1, [shardOf(0, [first]), shardOf(1, [still])]));
  const change = { ...counted(items, [1n], 100), removed: [BigUint64Array.of(3n)] };
  const second = await store(place, { ...to, number: 2 }, [change], [[1, 2, 'ENDED']]);
  await publishCheckpoint(place, draftOf(2, [shardOf(0, [first, second]), shardOf(1, [still])]));

  const adam = (from: number, state: number) => ({
    values: [from, from + 1, from + 2, from + 3],
    exp_avg: [state, state + 1, state + 2, state + 3],
    exp_avg_sq: [state + 4, state + 5, state + 6, state + 7],
    step: [state + 8],
  });
  const second1 = { table: 'items', key: String(big), ...adam(4, 9) };
  const plain = { table: other.name, key: '7', values: [0.5, 1.5, 2.5] };
  expect(read(directory)).toMatchObject({
    status: 0,
    stderr: expect.stringContaining('checkpoint 2 of 2026-11-22'),
    rows: [{ table: 'items', key: '1', ...adam(100, 100) }, second1, plain],
  });
  expect(read(directory, '1')).toMatchObject({
    status: 0,
    rows: [
      { table: 'items', key: '1', ...adam(0, 0) },
      second1,
      { table: 'items', key: '3', ...adam(8, 18) },
      plain,
    ],
  });
  const path = join(directory, first.name);
  writeFileSync(
    path,
    readFileSync(path).map((byte, i) => (i === 500 ? byte ^ 1 : byte)),
  );
  expect(read(directory)).toMatchObject({ status: 1, stderr: expect.stringContaining(first.name) });
});
