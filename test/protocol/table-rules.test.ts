/** Filters of tables: a table whose filter no shard could have is refused before any shard hears of it. */
import { describe, expect, it } from 'vitest';
import { restoredJob } from '../../src/core/scheduler/saving/restored.js';
import { filtered, mostSlots, ownSlots, rowStride } from '../../src/engine/filters.js';
import type { EngineTable } from '../../src/engine/native.js';
import type { TablePolicy } from '../../src/engine/policies.js';
import { tableProblem } from '../../src/protocol/table-rules.js';
import { native } from '../engine/native.support.js';

const poolOf = (k: number) => [{ name: 'embedding', k, r: 1, groups: 1 }];

function table(dim: number, policy: TablePolicy) {
  return {
    ...{ id: 3, name: 't', pool: 'embedding', dim, seed: 1, policy },
    ...{ optimizer: { kind: 'sgd' as const, lr: 1 }, initializer: { kind: 'zeros' as const } },
  } as const;
}

const problem = (spec: ReturnType<typeof table>, k: number) => tableProblem(spec, poolOf(k));
const bloom = (capacity: number, error: number): TablePolicy => ({
  bloom: { sightings: 2, capacity, error },
});

function withShard<T>(run: (shard: ReturnType<typeof native.createShard>) => T): T {
  const memory = native.createMemory(0);
  const shard = native.createShard(memory, 0, 1, 1);
  try {
    return run(shard);
  } finally {
    shard.close();
  }
}

function taken(spec: EngineTable, shards: number): boolean {
  return withShard((shard) => {
    try {
      shard.addTable(filtered(spec, shards));
      return true;
    } catch {
      return false;
    }
  });
}

describe('a filter', () => {
  it('that no shard could have is refused with a sentence', () => {
    for (const dim of [1, 64])
      expect(problem(table(dim, bloom(2 ** 32 - 1, 1e-6)), 1)).toMatch(
        /^table "t": policy: bloom needs \d+ slots of \d+ bytes in each of 1 shards, and a shard has \d+ at/,
      );
    expect(problem(table(64, bloom(1e6, 0.01)), 1)).toBeUndefined();
  });

  it('is refused if and only if a shard does not take it', () => {
    const found = { refused: 0, taken: 0 };
    for (const dim of [1, 4, 16, 300]) {
      for (let capacity = 1 << 24; capacity < 2 ** 32; capacity *= 2) {
        for (const [error, k] of [
          [0.01, 1],
          [1e-6, 1],
          [1e-6, 5],
        ] as const) {
          const spec = table(dim, bloom(capacity, error));
          const isTaken = problem(spec, k) === undefined;
          expect([dim, capacity, error, k, taken(spec, k)]).toEqual([dim, capacity, error, k, isTaken]);
          found[isTaken ? 'taken' : 'refused']++;
        }
      }
    }
    expect(Math.min(found.refused, found.taken)).toBeGreaterThan(5);
  });

  it('that a job of fewer shards could not have is refused before it is restored', () => {
    let capacity = 1 << 20;
    while (problem(table(1, bloom(capacity, 1e-6)), 1) === undefined) capacity *= 1.5;
    const spec = table(1, bloom(Math.ceil(capacity), 1e-6));
    const pools = poolOf(4);
    const saved = { kind: 'full job', number: 7, job: 'a', barrier: true, pools, tables: [spec], shards: [] };
    const restored = (k: number) => () => restoredJob('b', k + 1, poolOf(k), 'memory', saved as never);
    expect(restored(4)).not.toThrow();
    expect(restored(1)).toThrow(/bloom needs/);
  });
});

it('slots in front of the keys are those of the engine', () => {
  const policies: TablePolicy[] = [
    { ttl: 5 },
    { probability: 1 },
    { maxRows: 50, score: true },
    bloom(100, 0.01),
    bloom(10_000, 0.001),
  ];
  for (const policy of policies) {
    for (const dim of [1, 2, 3, 7, 8, 9, 10, 40]) {
      const spec = table(dim, policy);
      const key = { table: 3, width: dim, keys: BigUint64Array.of(7n, 7n), rows: new Float32Array(2 * dim) };
      const part = { ...key, order: Uint32Array.of(0, 1), start: 0, end: 2 };
      const extent = withShard((shard) => {
        shard.addTable(filtered(spec, 1));
        expect(shard.push(native.encodeRequest(0, [part]))).toBe(0);
        return shard.extents()[0]![2];
      });
      expect([dim, extent]).toEqual([dim, ownSlots(spec) + 1]);
    }
  }
  expect(mostSlots(rowStride(table(1, { ttl: 5 })))).toBe(2 ** 30 - 512);
});
