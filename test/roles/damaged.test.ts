/** Files of a chain that are gone, cut, changed or swapped: a restore names them, and begins with none. */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { poolsFor } from '../../src/core/placement/job.js';
import { setSavePlan } from '../../src/library/tools/checkpoints.js';
import type { RunningScheduler } from '../../src/roles/scheduler/scheduler-options.js';
import { readManifest } from '../../src/stores/checkpoint/checkpoints.js';
import { openPlace } from '../../src/stores/checkpoint/open.js';
import { openDirectoryStore } from '../../src/stores/decisions/directory.js';
import {
  COUNTING,
  client,
  cluster,
  firstKeys,
  ps,
  rejection,
  scheduler,
  statusWhere,
  temporaryDirectory,
} from './support.js';

const ROWS = 2000;
/** Increments after the checkpoint with all rows. */
const INCREMENTS = 2;

/** A place with a chain of two shards, and what the rows are. */
async function chain(): Promise<{ url: string; rows: Float32Array; chains: string[][] }> {
  const url = temporaryDirectory();
  const before = await cluster({ code: 'none', ps: 1, groups: 2 });
  const job = await client(before.address);
  const plan = { url, everyMs: 0, keep: 100, rate: 0, kind: 'full job' as const };
  await setSavePlan(job, 'checkpoint', plan);
  const counts = await job.createTable({ name: 'counts', ...COUNTING });
  for (let i = 0; i <= INCREMENTS; i++) {
    const some = i === 0 ? ROWS : 20;
    await counts.push(firstKeys(some), new Float32Array(some * COUNTING.dim).fill(1));
    await job.checkpoint();
  }
  const rows = await counts.pull(firstKeys(ROWS));
  await job.close();
  await before.close();
  const { shards, parents } = await readManifest(await openPlace(url));
  expect(parents.length).toBe(INCREMENTS);
  return { url, rows, chains: shards.map(({ segments }) => segments.map(({ name }) => name)) };
}

/** New bytes of a file; undefined: the file is gone. `other`: a file of another shard. */
const DAMAGES: [name: string, damage: (bytes: Buffer, other: Buffer) => Buffer | undefined][] = [
  ['removed', () => undefined],
  ['truncated', (bytes) => bytes.subarray(0, -1)],
  [
    'bit-flipped',
    (bytes) => {
      const changed = Buffer.from(bytes);
      changed[changed.length >> 1]! ^= 4;
      return changed;
    },
  ],
  ['swapped with another one', (_, other) => other],
];

it.each(DAMAGES)(
  'a file of a chain that is %s is named, and nothing of it is in the job',
  async (_, damage) => {
    const { url, rows, chains } = await chain();
    for (const [at, name] of chains[0]!.entries()) {
      const file = join(url, name);
      const bytes = readFileSync(file);
      const damaged = damage(bytes, readFileSync(join(url, chains[1]![at]!)));
      if (damaged) writeFileSync(file, damaged);
      else rmSync(file);
      expect(existsSync(file)).toBe(damaged !== undefined);

      const store = temporaryDirectory();
      const shape = { nodes: 1, pools: poolsFor({ k: 1, r: 0 }, 1), restore: { url } };
      const begin = () => scheduler({ ...shape, store: openDirectoryStore(store) });
      let running: RunningScheduler;
      if (damaged?.length === bytes.length) {
        // The file is read when its shard is loaded: the shard does not serve.
        running = await begin();
        await ps({ scheduler: running.address });
        const job = await client(running.address);
        const { restoring } = await statusWhere(
          job,
          'why',
          (status) => status.restoring?.failure !== undefined,
        );
        expect(restoring!.failure).toMatchObject({
          code: 'BAD_CHECKPOINT',
          message: expect.stringContaining(`${name}: `),
        });
        writeFileSync(file, bytes);
      } else {
        const refused = await rejection(begin());
        expect(refused).toMatchObject({
          code: 'BAD_CHECKPOINT',
          message: expect.stringContaining(`${name}: `),
        });
        writeFileSync(file, bytes);
        running = await begin();
        await ps({ scheduler: running.address });
      }
      // When the file is what it was, so are all rows.
      const after = await client(running.address);
      expect(await after.table('counts').pull(firstKeys(ROWS))).toEqual(rows);
      await after.close();
      await running.close();
    }
  },
  120_000,
);
