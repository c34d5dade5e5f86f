// Filters of tables in other numbers of shards: which slots a shard has, and what keys that waited count
// after a restore, against plain counts.
import { describe, expect, it } from 'vitest';
import { LoadedFilters } from '../../src/core/node/loaded-filters.js';
import type { Owner } from '../../src/core/shard/owner.js';
import { withFilter } from '../../src/engine/filters.js';
import { type EngineTable, loadNative, type NativeShard, PushStatus } from '../../src/engine/native.js';
import { optimizerOf } from '../../src/engine/optimizers.js';
import { type BloomPolicy, policyOfShard } from '../../src/engine/policies.js';
import type { FilterState } from '../../src/engine/snapshots.js';
import type { SegmentRef } from '../../src/protocol/checkpoints.js';
import { Random } from '../../src/sim/random.js';

const native = loadNative();
const memory = native.createMemory(0);
const DIM = 4;
const STATE: FilterState = { line: 9, first: 0, slots: 9, hashes: 2, capacity: 99, waiting: 5 };

function tableOf(bloom: BloomPolicy): EngineTable {
  const rest = { initializer: { kind: 'zeros' as const }, seed: 1 };
  return { id: 1, dim: DIM, optimizer: optimizerOf('sgd', 1), ...rest, policy: { bloom } };
}

function shardsOf(bloom: BloomPolicy, count: number): NativeShard[] {
  const table = tableOf(bloom);
  return Array.from({ length: count }, (_, shard) => {
    const made = native.createShard(memory, 0, 1, 1);
    made.addTable({ ...table, policy: withFilter(table, policyOfShard(table.policy!, count), shard) });
    return made;
  });
}

/** Pushes a key once to its shard. */
function see(shards: readonly NativeShard[], given: readonly bigint[]): void {
  const keys = BigUint64Array.from(given);
  const { order, starts } = native.partition(keys, shards.length);
  for (const [i, shard] of shards.entries()) {
    const [start, end] = [starts[i]!, starts[i + 1]!];
    if (start === end) continue;
    const rows = new Float32Array(keys.length * DIM).fill(1);
    const part = { table: 1, width: DIM, keys, order, rows, start, end };
    expect(shard.push(native.encodeRequest(0, [part]))).toBe(PushStatus.APPLIED);
    shard.dropBatch();
  }
}

function admitted(shards: readonly NativeShard[]): Set<bigint> {
  return new Set(shards.flatMap((shard) => [...shard.keys(1, 0, 1 << 24).keys]));
}

/** A shard in a checkpoint, with its files. */
interface Saved {
  group: number;
  member: number;
  segments: SegmentRef[];
  files: { segment: SegmentRef; filter: Parameters<LoadedFilters['take']>[1][0]['filter'] }[];
}

function save(shard: NativeShard, member: number, number = 1): Saved {
  const [{ table: _, ...state }] = shard.filters() as [FilterState & { table: number }];
  const ref = (i: number) => ({
    ...{ name: `00000${number}/0123abcd-g0-m${member}-${i}.safetensors`, bytes: 1, sha256: '', rows: 0 },
  });
  const files: Saved['files'] = [];
  shard.beginSnapshot(0);
  for (let piece = shard.readSnapshot(50_000); piece; piece = shard.readSnapshot(50_000))
    if (piece.filter) files.push({ segment: ref(files.length), filter: { state, ...piece.filter } });
  const empty = { slots: new BigUint64Array(0), counters: new Uint8Array(0) };
  files.push({ segment: ref(files.length), filter: { state, ...empty } });
  return { group: 0, member, segments: files.map(({ segment }) => segment), files };
}

/** Loads the shards that share keys, as the scheduler lists them. Returns the events. */
function restore(saved: readonly Saved[], shards: readonly NativeShard[]): Record<string, unknown>[] {
  const events: Record<string, unknown>[] = [];
  for (const [i, shard] of shards.entries()) {
    const [of, count] = [saved.length, shards.length];
    const sources = saved.filter((_, s) => s * count < (i + 1) * of && i * of < (s + 1) * count);
    const owner = { native: shard, group: { id: 0 }, member: i } as unknown as Owner;
    const filters = new LoadedFilters(owner, sources, () => 'items');
    for (const { files } of sources)
      for (const { segment, filter } of files)
        expect(filters.take(segment, [{ name: 'items', filter }])).toBe(PushStatus.APPLIED);
    const out = { event: (name: string, fields = {}) => events.push({ name, ...fields }) };
    expect(filters.finish(out)).toBe(PushStatus.APPLIED);
  }
  return events;
}

const bytesOf = (shard: NativeShard) => {
  const saved = save(shard, 0).files.flatMap(({ filter }) => filter!);
  const counters = new Map<bigint, string>();
  for (const { slots, counters: bytes } of saved)
    for (const [i, slot] of slots.entries()) {
      const width = bytes.length / slots.length;
      counters.set(slot, Buffer.from(bytes.subarray(i * width, (i + 1) * width)).toString('hex'));
    }
  return { counters: [...counters].sort(), waiting: saved.at(-1)!.state.waiting };
};

describe('a filter that is restored', () => {
  it('is a part of the same line in every number of shards', () => {
    const policy = (shards: number, shard: number) => {
      const table = tableOf({ sightings: 2, capacity: 10_000, error: 0.01 });
      return withFilter(table, policyOfShard(table.policy!, shards), shard).bloom as unknown as FilterState;
    };
    const { line, hashes } = policy(1, 0);
    for (const shards of [2, 3, 7, 64, 1000]) {
      let end = 0;
      for (let shard = 0; shard < shards; shard++) {
        const part = policy(shards, shard);
        expect(part).toMatchObject({ line, hashes });
        expect(part.first).toBeLessThanOrEqual(end);
        end = part.first + part.slots;
      }
      expect(end).toBeGreaterThanOrEqual(line);
    }
  });

  it('counts on as one that was never stopped, in as many shards', () => {
    const bloom = { sightings: 3, capacity: 600, error: 0.05 };
    const random = new Random(1);
    for (const count of [1, 2, 5]) {
      const before = shardsOf(bloom, count);
      const step = (...all: NativeShard[][]) => {
        const keys = Array.from({ length: 20 }, () => BigInt(random.below(4000)));
        for (const shards of all) see(shards, keys);
      };
      // Beyond its capacity: what it forgets next is restored, too.
      for (let i = 0; i < 100; i++) step(before);
      const after = shardsOf(bloom, count);
      expect(
        restore(
          before.map((shard, i) => save(shard, i)),
          after,
        ),
      ).toEqual([]);
      for (const [i, shard] of after.entries()) expect(bytesOf(shard)).toEqual(bytesOf(before[i]!));
      // Keys with rows are the matter of others: here are new ones.
      const known = admitted(before);
      for (let i = 0; i < 100; i++) {
        const keys = Array.from({ length: 20 }, () => BigInt(random.below(4000))).filter(
          (k) => !known.has(k),
        );
        see(before, keys);
        see(after, keys);
      }
      expect([...admitted(before)].filter((key) => !known.has(key)).sort()).toEqual(
        [...admitted(after)].sort(),
      );
      for (const [i, shard] of after.entries()) expect(bytesOf(shard)).toEqual(bytesOf(before[i]!));
    }
  });

  it.each([
    [1, 2],
    [2, 1],
    [4, 6],
    [6, 4],
    [3, 16],
    [16, 5],
  ])('counts on in other shards as plain counts do: %i become %i', (from, to) => {
    const bloom = { sightings: 4, capacity: 40_000, error: 1e-6 };
    const random = new Random(from * 100 + to);
    const counts = new Map<bigint, number>();
    const seeSome = (shards: readonly NativeShard[]) => {
      const keys = Array.from({ length: 40 }, () => BigInt(random.below(2000)));
      for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
      see(shards, keys);
    };
    const before = shardsOf(bloom, from);
    for (let i = 0; i < 60; i++) seeSome(before);
    const rows = admitted(before);
    expect([...rows].sort()).toEqual([...counts].flatMap(([key, n]) => (n >= 4 ? [key] : [])).sort());
    const after = shardsOf(bloom, to);
    const events = restore(
      before.map((shard, i) => save(shard, i)),
      after,
    );
    expect(events.length).toBe(to);
    expect(events[0]).toMatchObject({ name: 'restore.filter', group: 0, member: 0, table: 'items' });
    for (const key of rows) counts.delete(key);
    for (let i = 0; i < 60; i++) seeSome(after);
    for (const [key, count] of counts) expect([key, admitted(after).has(key)]).toEqual([key, count >= 4]);
  });

  it('admits no more keys too soon than its error, in whatever shards', () => {
    const bloom = { sightings: 2, capacity: 20_000, error: 0.02 };
    const wrong: number[] = [];
    for (const [from, to] of [
      [4, 4],
      [4, 1],
      [1, 4],
      [4, 7],
      [7, 4],
      [2, 16],
    ] as const) {
      const before = shardsOf(bloom, from);
      for (let i = 0; i < 9; i++)
        see(
          before,
          Array.from({ length: 1000 }, (_, j) => BigInt(i * 1000 + j)),
        );
      const after = shardsOf(bloom, to);
      restore(
        before.map((shard, i) => save(shard, i)),
        after,
      );
      // Keys that waited are all admitted at their second sighting.
      const again = Array.from({ length: 450 }, (_, j) => BigInt(j * 20));
      const waited = again.filter((key) => !admitted(before).has(key));
      const fresh = shardsOf(bloom, to);
      restore(
        before.map((shard, i) => save(shard, i)),
        fresh,
      );
      see(fresh, waited);
      expect(admitted(fresh).size).toBe(waited.length);
      // As many new ones as it has room for.
      const keys = Array.from({ length: 8000 }, (_, j) => BigInt(1e9 + j));
      for (let i = 0; i < 8; i++) see(after, keys.slice(i * 1000, (i + 1) * 1000));
      wrong.push(admitted(after).size / keys.length);
    }
    for (const part of wrong) expect(part).toBeLessThan(bloom.error);
    expect(Math.max(...wrong)).toBeGreaterThan(0);
  });

  it('forgets in other shards, too, what it has no room for', () => {
    const bloom = { sightings: 2, capacity: 1000, error: 0.02 };
    const before = shardsOf(bloom, 4);
    let next = 0;
    const seeNew = (shards: readonly NativeShard[]) =>
      see(
        shards,
        Array.from({ length: 50 }, () => BigInt(next++)),
      );
    for (let i = 0; i < 100; i++) seeNew(before);
    for (const to of [3, 1, 8]) {
      const after = shardsOf(bloom, to);
      restore(
        before.map((shard, i) => save(shard, i)),
        after,
      );
      const first = next;
      for (let i = 0; i < 200; i++) seeNew(after);
      expect(admitted(after).size).toBeLessThan((next - first) * bloom.error);
    }
  });

  it('is added once, also where another one finds no memory first', () => {
    const added: number[] = [];
    let full = true;
    const owner = {
      ...{ group: { id: 0 }, member: 0 },
      native: {
        filters: () => [1, 2].map((table) => ({ table, ...STATE })),
        loadFilter: (table: number, slots: BigUint64Array) => {
          if (full && table === 2) return PushStatus.MEMORY_LIMIT;
          if (slots.length > 0) added.push(table);
          return PushStatus.APPLIED;
        },
      },
    } as unknown as Owner;
    const segment = { name: '000001/0123abcd-g0-m0-0.safetensors', bytes: 1, sha256: '', rows: 0 };
    const filters = new LoadedFilters(owner, [{ group: 0, member: 0, segments: [segment] }], String);
    const slots = { slots: BigUint64Array.of(1n), counters: new Uint8Array(16) };
    const tables = ['1', '2'].map((name) => ({ name, filter: { state: STATE, ...slots } }));
    expect(filters.take(segment, tables)).toBe(PushStatus.MEMORY_LIMIT);
    full = false;
    expect(filters.take(segment, tables)).toBe(PushStatus.APPLIED);
    expect(added).toEqual([1, 2]);
  });

  it('is that of the newest checkpoint of a chain, and says where there is none', () => {
    const bloom = { sightings: 3, capacity: 1000, error: 0.001 };
    const [shard] = shardsOf(bloom, 1) as [NativeShard];
    see([shard], [1n]);
    const older = save(shard, 0, 1);
    see([shard], [1n]);
    const newer = save(shard, 0, 2);
    const files = [...older.files, ...newer.files];
    const chain = { ...newer, files, segments: files.map(({ segment }) => segment) };
    const [after] = shardsOf(bloom, 1) as [NativeShard];
    expect(restore([chain], [after])).toEqual([]);
    expect(bytesOf(after)).toEqual(bytesOf(shard));

    const [old] = shardsOf(bloom, 1) as [NativeShard];
    const without = { ...newer, files: newer.files.map((file) => ({ ...file, filter: undefined })) };
    const event = { name: 'restore.filter', group: 0, member: 0, table: 'items', sources: 1, found: 0 };
    expect(restore([without], [old])).toEqual([event]);
    expect(bytesOf(old)).toEqual({ counters: [], waiting: 0 });
    // Counters of another shape mean other keys.
    const other = shardsOf({ ...bloom, capacity: 2000 }, 1);
    expect(restore([newer], other)).toEqual([event]);
    expect(admitted(other).size).toBe(0);
  });
});
