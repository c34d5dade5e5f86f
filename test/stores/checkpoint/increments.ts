/** Chains of checkpoints for tests: what increments write and remove, and what a restore has of them. */
import fc from 'fast-check';
import type { Manifest, SavedShard } from '../../../src/protocol/checkpoints.js';
import { bytesOf } from '../../../src/stores/checkpoint/bytes.js';
import { publishCheckpoint, readManifest, readSegment } from '../../../src/stores/checkpoint/checkpoints.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { draftOf, random, rows, shardOf, store, TABLES, writeShards } from './support.js';

/** Content of a restore: the bytes of every row, by shard, table and key; and if all came once. */
export async function contentOf(
  place: Place,
  manifest: Manifest,
): Promise<{ rows: Map<string, string>; once: boolean }> {
  const content = new Map<string, string>();
  let count = 0;
  for (const shard of manifest.shards) {
    for (const ref of shard.segments) {
      const { tables } = await readSegment(place, ref);
      for (const { name, dim, keys, values, state, removed } of tables) {
        const key = (of: bigint) => `${shard.shard}/${name}/${of}`;
        for (const gone of removed) content.delete(key(gone));
        const width = state.length / Math.max(1, keys.length);
        for (const [i, of] of keys.entries()) {
          const parts = [values.subarray(i * dim, (i + 1) * dim), state.subarray(i * width, (i + 1) * width)];
          content.set(key(of), parts.map((part) => Buffer.from(bytesOf(part)).toString('hex')).join());
          count++;
        }
      }
    }
  }
  return { rows: content, once: count === content.size };
}

/** Each checkpoint writes some keys, as rows or as removed, in several segments. */
export const increments = fc.array(
  fc.record({
    keys: fc.uniqueArray(fc.integer({ min: 0, max: 40 }), { maxLength: 25 }),
    removed: fc.integer({ min: 0, max: 5 }),
    segments: fc.integer({ min: 1, max: 3 }),
  }),
  { minLength: 1, maxLength: 5 },
);

export async function writeSteps(
  place: Place,
  steps: readonly { keys: number[]; removed: number; segments: number }[],
): Promise<Manifest> {
  const next = random(steps.length);
  let segments: SavedShard['segments'] = [];
  const still = await writeShards(place, 1);
  for (const [i, { keys, removed, segments: count }] of steps.entries()) {
    const number = i + 1;
    const gone = number === 1 ? [] : keys.slice(0, removed);
    const kept = keys.slice(gone.length);
    for (let part = 0; part < count; part++) {
      const of = (list: number[]) => list.filter((_, at) => at % count === part).map(BigInt);
      const [table, other] = TABLES as [(typeof TABLES)[0], (typeof TABLES)[0]];
      const removed = [BigUint64Array.from(of(gone))];
      const first = { ...rows(table, of(kept), next), removed };
      const to = { number, attempt: 'cccccccc', shard: 0, part, position: number };
      const isLast = part === count - 1;
      const sessions = isLast
        ? ([[5, number, [[number, 'LIMIT']]]] as [[number, number, [[number, 'LIMIT']]]])
        : undefined;
      const tables = [first, { ...rows(other, of(kept), next), removed }];
      segments = [...segments, await store(place, to, tables, sessions)];
    }
    await publishCheckpoint(place, draftOf(number, [shardOf(0, segments, number), still[1]!]));
  }
  return readManifest(place);
}
