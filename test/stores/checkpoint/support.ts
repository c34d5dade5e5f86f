/** Checkpoints for tests: random rows, whose bits are all kept, and drafts of manifests. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { splitMix as random } from '../../../src/core/scheduler/samples/ranges.js';
import { optimizerOf } from '../../../src/engine/optimizers.js';
import {
  type CheckpointDraft,
  type SavedShard,
  type SavedTable,
  type SegmentRef,
  segmentName,
} from '../../../src/protocol/checkpoints.js';
import { locate, type Pool, shardCount } from '../../../src/protocol/map.js';
import type { DedupEntry } from '../../../src/protocol/messages.js';
import type { FilterToWrite } from '../../../src/stores/checkpoint/filter-part.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import {
  encodeSegment,
  rowsOf,
  statePartsOf,
  type TableToWrite,
} from '../../../src/stores/checkpoint/segment.js';

export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-places-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export { random };

export const POOL: Pool = { name: 'embedding', k: 2, r: 1, firstGroup: 0, groups: 1 };
export const TABLES: SavedTable[] = [
  {
    name: 'items',
    pool: 'embedding',
    dim: 4,
    optimizer: optimizerOf('adam', 0.1),
    initializer: { kind: 'zeros' },
    seed: 1,
  },
  {
    name: 'a.dotted name ü',
    pool: 'embedding',
    dim: 3,
    optimizer: optimizerOf('sgd', 0.5),
    initializer: { kind: 'constant', value: 1 },
    seed: 2,
  },
];

/** Floats of these words: every pattern of bits occurs, those of NaNs too. */
function floats(count: number, next: () => number): Float32Array {
  return new Float32Array(Uint32Array.from({ length: count }, next).buffer);
}

/** Rows of a table for these keys. */
export function rows(table: SavedTable, keys: readonly bigint[], next: () => number): TableToWrite {
  const stateParts = statePartsOf(table.dim, table.optimizer);
  const width = stateParts.reduce((sum, part) => sum + part.floats, 0);
  return {
    name: table.name,
    dim: table.dim,
    stateParts,
    keys: [BigUint64Array.from(keys)],
    values: [floats(keys.length * table.dim, next)],
    state: [floats(keys.length * width, next)],
  };
}

/** Slots of a filter, for these slots. */
export function filterOf(slots: readonly number[], width: number, next: () => number): FilterToWrite {
  const state = { line: 1000, first: 100, slots: 500, hashes: 3, capacity: 2000, waiting: slots.length };
  const counters = Uint8Array.from({ length: slots.length * width }, () => next() & 255);
  return { state, width, slots: [BigUint64Array.from(slots, BigInt)], counters: [counters] };
}

/** Writes one segment of a shard. */
export async function store(
  place: Place,
  to: { number: number; attempt: string; shard: number; part: number; position: number },
  tables: readonly TableToWrite[],
  sessions?: readonly DedupEntry[],
): Promise<SegmentRef> {
  const home = locate(POOL, to.shard);
  const name = segmentName(to, home, to.part);
  const stored = await place.put(name, encodeSegment(tables, sessions, { ...home, position: to.position }));
  return { name, ...stored, rows: rowsOf(tables) };
}

export function shardOf(shard: number, segments: SegmentRef[], position = 1): SavedShard {
  return { pool: POOL.name, shard, ...locate(POOL, shard), position, since: 0, segments };
}

export function draftOf(number: number, shards: SavedShard[]): CheckpointDraft {
  return {
    number,
    kind: 'full job',
    attempt: '0123abcd',
    job: 'job-1',
    createdAt: '2026-11-22T12:00:00.000Z',
    barrier: false,
    pools: [POOL],
    tables: TABLES,
    samples: { nextPeer: 7, datasets: [], sessions: [3] },
    shards,
  };
}

/** A checkpoint with a segment for each shard, each with some rows of every table. */
export async function writeShards(place: Place, number: number, seed = number): Promise<SavedShard[]> {
  const next = random(seed);
  const shards: SavedShard[] = [];
  for (let shard = 0; shard < shardCount(POOL); shard++) {
    const tables = TABLES.map((table) => rows(table, [1n, 2n, 3n + BigInt(seed)], next));
    const to = { number, attempt: '0123abcd', shard, part: 0, position: number };
    shards.push(shardOf(shard, [await store(place, to, tables, [[3, 9, []]])], number));
  }
  return shards;
}

/** All bytes of parts. */
export function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.concat(parts));
}
