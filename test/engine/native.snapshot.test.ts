// Snapshots and loaded rows through the binding: shapes, codes, and what they do to the memory budget. What
// they hold is tested in native/test/snapshot_test.cc.
import { describe, expect, it } from 'vitest';
import { type EngineTable, loadNative, type NativeShard, PushStatus } from '../../src/engine/native.js';
import type { SnapshotRows } from '../../src/engine/snapshots.js';

const native = loadNative();
const table: EngineTable = {
  id: 3,
  dim: 4,
  optimizer: { kind: 'adagrad', lr: 0.5, eps: 1e-8, initialAccumulator: 0.1 },
  initializer: { kind: 'uniform', low: -1, high: 1 },
  seed: 11,
};
/** Keys, values and state of a row. */
const ROW_BYTES = 8 + 4 * 4 + 4 * 4;

const codeOf = (call: () => unknown): string => {
  try {
    call();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return 'nothing was thrown';
};

const newShard = (limit = 0): NativeShard => {
  const shard = native.createShard(native.createMemory(limit), 0, 1, 1);
  shard.addTable(table);
  return shard;
};

const section = (keys: bigint[], value: number): Uint8Array =>
  native.encodeRequest(0, [
    {
      table: 3,
      width: 4,
      keys: BigUint64Array.from(keys),
      rows: new Float32Array(keys.length * 4).fill(value),
      order: Uint32Array.from(keys, (_, i) => i),
      start: 0,
      end: keys.length,
    },
  ]);

const push = (shard: NativeShard, keys: bigint[], value = 1): void => {
  expect(shard.push(section(keys, value))).toBe(PushStatus.APPLIED);
  shard.dropBatch();
};

const range = (from: number, to: number): bigint[] =>
  Array.from({ length: to - from }, (_, i) => BigInt(from + i));

const readAll = (shard: NativeShard, maxBytes: number): SnapshotRows[] => {
  const pieces: SnapshotRows[] = [];
  for (let piece = shard.readSnapshot(maxBytes); piece; piece = shard.readSnapshot(maxBytes))
    pieces.push(piece);
  return pieces;
};

/** Row by key. */
const rowsOf = (pieces: SnapshotRows[]): Map<bigint, string> => {
  const rows = new Map<bigint, string>();
  for (const { keys, values, state } of pieces) {
    expect([values.length, state.length]).toEqual([keys.length * 4, keys.length * 4]);
    for (const [i, key] of keys.entries()) {
      expect(rows.has(key)).toBe(false);
      rows.set(key, `${values.subarray(i * 4, i * 4 + 4)} ${state.subarray(i * 4, i * 4 + 4)}`);
    }
  }
  return rows;
};

const contentOf = (shard: NativeShard): Map<bigint, string> => {
  shard.beginSnapshot(0);
  return rowsOf(readAll(shard, 1 << 20));
};

describe('snapshots', () => {
  it('hold the rows of one instant while pushes go on, and a chain brings them back', () => {
    const shard = newShard();
    push(shard, range(0, 5000));
    const before = contentOf(shard);
    const full = shard.beginSnapshot(0);
    expect(full).toEqual({ stamp: 2, since: 0, rows: 5000, bytes: 5000 * ROW_BYTES });
    const pieces: SnapshotRows[] = [];
    for (let i = 0; ; i++) {
      push(shard, [BigInt(4000 + i), BigInt(6000 + i), BigInt(i * 7)]);
      if (i === 0) expect(shard.snapshotBytes).toBeGreaterThan(0);
      const piece = shard.readSnapshot(30_000);
      if (!piece) break;
      expect(piece.table).toBe(3);
      expect(piece.keys.length * ROW_BYTES).toBeLessThanOrEqual(30_000);
      pieces.push(piece);
    }
    expect(shard.snapshotBytes).toBe(0);
    expect(pieces.length).toBeGreaterThan(6);
    expect(rowsOf(pieces)).toEqual(before);
    const changed = shard.beginSnapshot(full.stamp);
    expect(changed.stamp).toBe(3);
    expect(changed.rows).toBeLessThan(5000);
    const increment = readAll(shard, 1 << 20);
    expect(increment.reduce((sum, { keys }) => sum + keys.length, 0)).toBe(changed.rows);
    const after = newShard();
    for (const { table, keys, values, state } of [...pieces, ...increment])
      expect(after.loadRows(table, keys, values, state)).toBe(PushStatus.APPLIED);
    expect(after.dirty).toBe(false);
    expect(contentOf(after)).toEqual(contentOf(shard));
    // No row has changed since: there is nothing to save. A number that was never given: all rows are saved.
    expect(shard.beginSnapshot(4).rows).toBe(0);
    expect(shard.readSnapshot(1)).toBeUndefined();
    expect(shard.beginSnapshot(77).rows).toBe(shard.stats()[0]?.rows);
  });

  it('of what changed have these rows alone, through hundreds of snapshots', () => {
    const shard = newShard();
    push(shard, range(0, 1000));
    let stamp = shard.beginSnapshot(0).stamp;
    readAll(shard, 1 << 20);
    let older = stamp;
    const everything: number[] = [];
    for (let i = 0; i < 600; i++) {
      const keys = [BigInt(i), BigInt((i * 37) % 1000), BigInt(1000 + i)];
      push(shard, keys);
      // Every tenth one covers what two others have seen, too.
      const since = i % 10 === 9 ? older : stamp;
      older = stamp;
      const begun = shard.beginSnapshot(since);
      stamp = begun.stamp;
      const rows = [...rowsOf(readAll(shard, 1 << 20)).keys()];
      expect(rows.length).toBe(begun.rows);
      expect(rows).toEqual(expect.arrayContaining(keys));
      if (rows.length > 6) everything.push(i);
      else if (since === older) expect(new Set(rows)).toEqual(new Set(keys));
    }
    // Stamps have one byte. When they are counted anew all rows count as changed, once.
    expect(everything.length).toBe(2);
  });

  it('are refused at the wrong time, and say what is wrong with arguments', () => {
    const shard = newShard();
    expect(codeOf(() => shard.readSnapshot(1000))).toBe('BAD_ARGUMENT');
    expect(shard.beginSnapshot(0)).toEqual({ stamp: 1, since: 0, rows: 0, bytes: 0 });
    expect(codeOf(() => shard.beginSnapshot(0))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.readSnapshot(0))).toBe('BAD_ARGUMENT');
    expect(shard.readSnapshot(1000)).toBeUndefined();
    expect(codeOf(() => shard.readSnapshot(1000))).toBe('BAD_ARGUMENT');
    shard.endSnapshot();
    expect(shard.push(section([1n], 1))).toBe(PushStatus.APPLIED);
    expect(codeOf(() => shard.beginSnapshot(0))).toBe('BAD_ARGUMENT');
    shard.dropBatch();
    for (const wrong of [-1, 0.5, Number.NaN, 2 ** 32, '0', null, undefined])
      expect(codeOf(() => shard.beginSnapshot(wrong as number))).toBe('BAD_ARGUMENT');
    expect(shard.beginSnapshot(0).stamp).toBe(2);
    for (const wrong of [-1, 0.5, Number.NaN, 2 ** 32, '0', null, undefined])
      expect(codeOf(() => shard.readSnapshot(wrong as number))).toBe('BAD_ARGUMENT');
    const lost = newShard();
    lost.adopt(3, 10);
    expect(codeOf(() => lost.beginSnapshot(0))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => lost.loadRows(3, new BigUint64Array(), new Float32Array(), new Float32Array()))).toBe(
      'BAD_ARGUMENT',
    );
  });

  it('take nothing of the memory limit, and give back what they kept', () => {
    const memory = native.createMemory(256 << 10);
    const shard = native.createShard(memory, 0, 1, 1);
    shard.addTable(table);
    push(shard, range(0, 3000));
    const without = memory.usedBytes;
    shard.beginSnapshot(0);
    push(shard, range(0, 3000), 2);
    expect(shard.snapshotBytes).toBeGreaterThanOrEqual(3000 * ROW_BYTES);
    expect(memory.usedBytes).toBeGreaterThanOrEqual(without + shard.snapshotBytes);
    expect(memory.usedBytes).toBeGreaterThan(memory.limitBytes);
    push(shard, range(3000, 3200)); // new rows take memory, of which there is enough
    shard.endSnapshot();
    expect(shard.snapshotBytes).toBe(0);
    expect(memory.usedBytes).toBeLessThan(memory.limitBytes);
    shard.beginSnapshot(0);
    push(shard, range(0, 3000), 2);
    shard.close();
    expect(memory.usedBytes).toBe(0);
    expect(codeOf(() => shard.beginSnapshot(0))).toBe('CLOSED');
    expect(codeOf(() => shard.readSnapshot(1))).toBe('CLOSED');
    expect(codeOf(() => shard.snapshotBytes)).toBe('CLOSED');
    expect(codeOf(() => shard.endSnapshot())).toBe('CLOSED');
  });
});

describe('loaded rows', () => {
  const rows = (keys: bigint[], value = 1): Parameters<NativeShard['loadRows']> => [
    3,
    BigUint64Array.from(keys),
    new Float32Array(keys.length * 4).fill(value),
    new Float32Array(keys.length * 4).fill(value + 1),
  ];

  it('replace what is there, and of a key that comes twice the last one counts', () => {
    const shard = newShard();
    push(shard, [7n]);
    const [id, keys, values, state] = rows([5n, 7n, 5n, 0n]);
    values.set([9, 9, 9, 9], 8);
    expect(shard.loadRows(id, keys, values, state)).toBe(PushStatus.APPLIED);
    expect(contentOf(shard)).toEqual(
      new Map([
        [7n, '1,1,1,1 2,2,2,2'],
        [5n, '9,9,9,9 2,2,2,2'],
        [0n, '1,1,1,1 2,2,2,2'],
      ]),
    );
    expect(shard.stats()[0]).toMatchObject({ rows: 3, extent: 3 });
  });

  it('change nothing when they are refused', () => {
    const shard = newShard(64 << 10);
    push(shard, [1n]);
    const before = contentOf(shard);
    const [id, keys, values, state] = rows([1n, 2n], 5);
    expect(shard.loadRows(4, keys, values, state)).toBe(PushStatus.UNKNOWN_TABLE);
    expect(shard.loadRows(id, keys, values.subarray(1), state)).toBe(PushStatus.DIM_MISMATCH);
    expect(shard.loadRows(id, keys, values, new Float32Array())).toBe(PushStatus.DIM_MISMATCH);
    expect(shard.loadRows(id, keys, values, new Float32Array(9))).toBe(PushStatus.DIM_MISMATCH);
    expect(shard.loadRows(...rows([1n, 2n ** 64n - 1n], 5))).toBe(PushStatus.KEY_RESERVED);
    expect(shard.loadRows(...rows(range(0, 3000), 5))).toBe(PushStatus.MEMORY_LIMIT);
    expect(codeOf(() => shard.loadRows(-1, keys, values, state))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.loadRows(id, [1n] as unknown as BigUint64Array, values, state))).toBe(
      'BAD_ARGUMENT',
    );
    const doubles = new Float64Array(8) as unknown as Float32Array;
    expect(codeOf(() => shard.loadRows(id, keys, doubles, state))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.loadRows(id, keys, values, undefined as unknown as Float32Array))).toBe(
      'BAD_ARGUMENT',
    );
    expect(contentOf(shard)).toEqual(before);
    // So many repeats that the limit would refuse them, were they different keys.
    expect(shard.loadRows(...rows(Array<bigint>(3000).fill(8n), 5))).toBe(PushStatus.APPLIED);
    expect(shard.stats()[0]?.rows).toBe(2);
    expect(shard.push(section([1n], 1))).toBe(PushStatus.APPLIED);
    expect(codeOf(() => shard.loadRows(...rows([1n])))).toBe('BAD_ARGUMENT');
    shard.dropBatch();
    expect(shard.loadRows(...rows([]))).toBe(PushStatus.APPLIED);
  });
});
