/** The formula of memory against the engine that it describes. */
import { describe, expect, it } from 'vitest';
import { loadNative, PushStatus } from '../../../src/engine/native.js';
import { type OptimizerKind, optimizerOf } from '../../../src/engine/optimizers.js';
import type { TablePolicy } from '../../../src/engine/policies.js';
import {
  codedBytes,
  dataShardBytes,
  indexBytes,
  maxRowsPerShard,
  nodeMemory,
  rowFloats,
} from '../../../src/fleet/planner/memory.js';

const native = loadNative();
const MEMBERS = 4;

/** A shard with so many rows, and a parity of it, as the engine makes them. */
function engine(rows: number, dim: number, kind: OptimizerKind, policy?: TablePolicy) {
  const memory = native.createMemory(0);
  const shard = native.createShard(memory, 0, MEMBERS, 1);
  const parity = native.createSink(memory, MEMBERS, 1, 0, true);
  const optimizer = optimizerOf(kind, 0.1);
  shard.addTable({
    id: 1,
    dim,
    optimizer,
    initializer: { kind: 'zeros' },
    seed: 1,
    ...(policy && { policy }),
  });
  for (let at = 0; at < rows; at += 4096) {
    const count = Math.min(4096, rows - at);
    const keys = BigUint64Array.from({ length: count }, (_, i) =>
      BigInt.asUintN(64, BigInt(at + i) * 11_400_714_819_323_198_485n),
    );
    const order = Uint32Array.from({ length: count }, (_, i) => i);
    const gradients = new Float32Array(count * dim).fill(0.1);
    const parts = [{ table: 1, width: dim, keys, rows: gradients, order, start: 0, end: count }];
    expect(shard.push(native.encodeRequest(0, parts))).toBe(PushStatus.APPLIED);
    parity.apply(0, shard.flush());
  }
  return { memory, shard, parity };
}

const SHAPES: [number, number, OptimizerKind][] = [
  [100_000, 16, 'adagrad'],
  [50_000, 64, 'adagrad'],
  [30_000, 128, 'sgd'],
  [77_777, 8, 'adam'],
  [200_000, 4, 'rowwise_adagrad'],
  [3_000, 1_500, 'momentum'],
  [1, 16, 'sgd'],
];

describe('a row costs what the engine says', () => {
  it.each(SHAPES)('%i rows of dim %i with %s', (rows, dim, optimizer) => {
    const shape = { dim, optimizer };
    expect(rowFloats(shape)).toBe(native.rowWidth(dim, optimizerOf(optimizer, 0.1)));
    const { memory, shard, parity } = engine(rows, dim, optimizer);
    // The goal is 5 %. The formula is the engine's own arithmetic, so it is exact.
    expect(shard.bytes).toBe(dataShardBytes(rows, shape));
    expect(parity.bytes).toBe(codedBytes(rows, shape));
    expect(memory.usedBytes).toBe(dataShardBytes(rows, shape) + codedBytes(rows, shape));
    shard.beginSnapshot(0);
    shard.endSnapshot();
    expect(shard.bytes).toBe(dataShardBytes(rows, shape, true));
    shard.close();
    parity.close();
  });

  // The clock has a slot: where rows fill their blocks, it begins a block.
  it.each<[number, number, TablePolicy, number]>([
    [100_000, 16, { ttl: 1_000_000 }, 2],
    [50_000, 6, { ttl: 1_000_000 }, 2],
    [512 * 28, 6, { ttl: 1_000_000 }, 2],
    [1, 16, { ttl: 1_000_000 }, 2],
    [50_000, 6, { maxRows: 1_000_000, score: true }, 3],
    [30_000, 16, { memory: true, score: true, ttl: 1_000_000 }, 3],
  ])('%i rows of dim %i in a table with the policy %o', (rows, dim, policy, words) => {
    const shape = { dim, optimizer: 'adagrad', policy } as const;
    const { shard, parity } = engine(rows, dim, 'adagrad', shape.policy);
    expect(shard.bytes).toBe(dataShardBytes(rows, shape));
    expect(parity.bytes).toBe(codedBytes(rows, shape));
    expect(rowFloats(shape)).toBe(2 * dim + words);
    shard.close();
    parity.close();
  });
});

describe('the index', () => {
  it('has the least power of two of buckets that is 65 % full at most', () => {
    expect([0, 1, 10, 11, 20, 21].map(indexBytes)).toEqual([0, 192, 192, 384, 384, 768]);
  });
});

it('a shard has no more rows than its columns may have bytes', () => {
  const shape = { dim: 16, optimizer: 'adagrad' } as const;
  const rows = maxRowsPerShard(shape);
  expect(rows * 128).toBeLessThanOrEqual(64 * 2 ** 30);
  // One block less than the largest column.
  expect((rows + 64) * 128).toBeGreaterThan(64 * 2 ** 30);
});

it('all PS together hold each row once, and r/k of it again', () => {
  const shape = { dim: 64, optimizer: 'adagrad' } as const;
  const { rows, parity } = nodeMemory(10_000_000, shape, { k: 4, r: 1, groups: 20 }, 20);
  expect((rows * 20) / (10_000_000 * 520)).toBeCloseTo(1, 2);
  expect(parity / rows).toBeCloseTo(0.25, 5);
});
