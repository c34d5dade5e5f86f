// The evictions of a shard: what is kept for readers, and from where they are answered.
import { describe, expect, it } from 'vitest';
import { ShardEvictions } from '../../../src/core/shard/evictions.js';
import { DeltaBytes } from '../../../src/core/shared/delta-bytes.js';
import { EvictedBytes } from '../../../src/core/shared/evicted-bytes.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import type { EvictedKeys } from '../../../src/engine/policies.js';

const TABLE = 3;
const ENTRY_BYTES = 9;

/** Evictions of an ownership of generation 5, whose engine a test tells what leaves. */
function shard({ maxEvictedBytes = 1 << 20, evictedMs = 1000 } = {}) {
  const watched = new Set<number>();
  let open: (EvictedKeys & { table: number })[] = [];
  const evicted = new EvictedBytes(maxEvictedBytes);
  const deltaBytes = new DeltaBytes(1 << 20);
  const host = { policy: { ...DEFAULT_POLICY, evictedMs }, deltaBytes, evicted, now: 0 };
  const native = {
    watch: (table: number, on: boolean) => void (on ? watched.add(table) : watched.delete(table)),
    takeEvicted: () => open.splice(0),
  };
  const evictions = new ShardEvictions(5, native, host);
  let seq = 0;
  const flush = (keys: number[], table = TABLE) => {
    if (watched.has(table)) {
      const reasons = Uint8Array.from(keys, (key) => key % 4);
      open = [{ table, keys: BigUint64Array.from(keys, BigInt), reasons }];
    }
    evictions.flushing(++seq);
  };
  const read = (gen: number, from: number, max = 100, table = TABLE) => {
    const asked = { t: 'evictions', g: 0, m: 0, epoch: 1, id: 1, table, gen, from, max } as const;
    const { keys, reasons, from: at, end } = evictions.read(asked);
    expect([...reasons]).toEqual([...keys].map((key) => Number(key % 4n)));
    return { from: at, end, keys: [...keys].map(Number) };
  };
  return { evictions, host, watched, evicted, deltaBytes, flush, read, seq: () => seq };
}

const numbers = (first: number, count: number) => Array.from({ length: count }, (_, i) => first + i);

describe('evictions of a shard', () => {
  it('are told when their batch is durable, in order', () => {
    const { evictions, read, flush, deltaBytes } = shard();
    expect(read(0, 0)).toEqual({ from: 0, end: 0, keys: [] });
    flush([1, 2]);
    flush([]);
    flush([3]);
    expect(deltaBytes.uncommitted).toBe(3 * ENTRY_BYTES);
    expect(read(5, 0).keys).toEqual([]);
    evictions.committed(2);
    expect(read(5, 0)).toEqual({ from: 0, end: 2, keys: [1, 2] });
    evictions.committed(3);
    expect(deltaBytes.uncommitted).toBe(0);
    expect(read(5, 1)).toEqual({ from: 1, end: 3, keys: [2, 3] });
    expect(read(5, 0, 1)).toEqual({ from: 0, end: 3, keys: [1] });
    expect(read(0, 0)).toEqual({ from: 3, end: 3, keys: [] });
  });

  it('are not kept before somebody asks, and of tables that nobody asks for', () => {
    const { evictions, read, flush, watched, evicted } = shard();
    flush([1]);
    evictions.committed(1);
    expect(watched.size).toBe(0);
    expect(read(0, 0)).toEqual({ from: 0, end: 0, keys: [] });
    flush([2], 4);
    flush([3]);
    evictions.committed(3);
    expect([...watched]).toEqual([TABLE]);
    expect(read(5, 0).keys).toEqual([3]);
    expect(evicted.used).toBeGreaterThan(0);
  });

  it('of a batch larger than a segment are all kept, over many segments', () => {
    const { evictions, read, flush } = shard();
    read(0, 0);
    const all = numbers(100, 30_000);
    flush(all);
    evictions.committed(1);
    expect(read(5, 0, 40_000).keys).toEqual(all);
    expect(read(5, 12_345, 7_000)).toEqual({ from: 12_345, end: 30_000, keys: all.slice(12_345, 19_345) });
  });

  it('that are beyond the limit are forgotten, the oldest first, and a reader begins later', () => {
    const { evictions, read, flush, evicted } = shard({ maxEvictedBytes: 40 * ENTRY_BYTES });
    read(0, 0);
    for (let i = 0; i < 100; i++) flush([i]);
    evictions.committed(100);
    expect(evicted.used).toBeLessThanOrEqual(40 * ENTRY_BYTES);
    const { from, end, keys } = read(5, 0);
    expect(end).toBe(100);
    expect(from).toBeGreaterThan(60);
    expect(keys).toEqual(numbers(from, 100 - from));
    expect(read(5, from + 3).keys).toEqual(numbers(from + 3, 97 - from));
  });

  it('of several tables share the limit', () => {
    const { evictions, read, flush, evicted } = shard({ maxEvictedBytes: 80 * ENTRY_BYTES });
    read(0, 0);
    flush(numbers(0, 80));
    evictions.committed(1);
    const alone = read(5, 0).keys.length;
    read(0, 0, 1, 4);
    evictions.tick();
    expect(read(5, 0).keys.length).toBeLessThan(alone);
    flush(numbers(0, 80), 4);
    evictions.committed(2);
    expect(read(5, 0, 100, 4).keys.length).toBeGreaterThan(10);
    expect(evicted.used).toBeLessThanOrEqual(80 * ENTRY_BYTES);
  });

  it('of another ownership are unknown: such a reader gets all that is kept', () => {
    const { evictions, read, flush } = shard();
    read(0, 0);
    flush([7, 8, 9]);
    evictions.committed(1);
    expect(read(4, 2)).toEqual({ from: 0, end: 3, keys: [7, 8, 9] });
  });

  it('end when nobody has asked for long, and begin anew beyond every number that was told', () => {
    const { evictions, host, read, flush, watched, evicted, deltaBytes } = shard();
    read(0, 0);
    flush([1]);
    evictions.committed(1);
    flush([2]);
    host.now = 900;
    expect(read(5, 0).keys).toEqual([1]);
    host.now = 1900;
    evictions.tick();
    expect([...watched]).toEqual([TABLE]);
    host.now = 1901;
    evictions.tick();
    expect([watched.size, evicted.used, evicted.rings]).toEqual([0, 0, 0]);
    // Key 1 was told, key 2 was not: the place behind key 1 is not kept any more.
    expect(read(5, 1)).toEqual({ from: 2, end: 2, keys: [] });
    evictions.committed(2);
    expect(read(5, 2)).toEqual({ from: 2, end: 2, keys: [] });
    expect(deltaBytes.uncommitted).toBe(0);
  });

  it('of a dropped table, and of an ownership that is over, take no memory', () => {
    const { evictions, read, flush, watched, evicted, deltaBytes } = shard();
    read(0, 0);
    read(0, 0, 1, 4);
    flush([1, 2]);
    evictions.committed(1);
    evictions.dropTables([TABLE, 99]);
    expect([...watched]).toEqual([4]);
    flush([5], 4);
    evictions.close();
    expect([watched.size, evicted.used, evicted.rings, deltaBytes.uncommitted]).toEqual([0, 0, 0, 0]);
  });
});
