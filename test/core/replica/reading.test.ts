// Answers of a replica to pulls: all rows from states that are new enough, or a refusal with a code.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { KintsugiError } from '../../../src/common/errors.js';
import { MAX_READ_BYTES, type ReadLimits, read } from '../../../src/core/replica/reading.js';
import { loadNative, type NativeShard } from '../../../src/engine/native.js';

const native = loadNative();
const TABLE = {
  ...{ id: 1, dim: 3, seed: 0 },
  optimizer: { kind: 'sgd', lr: -1 },
  initializer: { kind: 'constant', value: 0.5 },
} as const;

let shard: NativeShard;
beforeEach(() => {
  shard = native.createShard(native.createMemory(0), 0, 1, 1);
  shard.addTable(TABLE);
  shard.push(asking([7n], new Float32Array([1, 2, 3])));
});
afterEach(() => shard.close());

function asking(keys: bigint[], rows?: Float32Array, table = 1, width = 3): Uint8Array {
  const order = Uint32Array.from(keys, (_, i) => i);
  const part = { table, width, keys: BigUint64Array.from(keys), order, start: 0, end: keys.length };
  return native.encodeRequest(0, [{ ...part, ...(rows && { rows }) }]);
}

const ANY: ReadLimits = { maxLagMs: Number.POSITIVE_INFINITY, missing: undefined };

function answer(section: Uint8Array, limits = ANY, lagMs = 20) {
  return read(
    {
      position: (g) => (g === 0 ? { gen: 4, seq: 9, lagMs } : undefined),
      shardAt: (g) => (g === 0 ? { state: { native: shard } } : undefined),
    },
    [{ g: 0, m: 0, section }],
    limits,
  );
}

const floats = (rows: Uint8Array) => [...new Float32Array(rows.slice().buffer)];

function codeOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    return (error as KintsugiError).code;
  }
  return 'none';
}

describe('a pull of a replica', () => {
  it('has rows, and of which state they are', () => {
    const { rows, states, lagMs } = answer(asking([7n]));
    expect(floats(rows[0]!).slice(0, 3)).toEqual([1.5, 2.5, 3.5]);
    expect(states).toEqual([[4, 9]]);
    expect(lagMs).toBe(20);
  });

  it('has the initial value where there is no row, or what was asked for', () => {
    const section = asking([8n, 7n, 9n]);
    expect(floats(answer(section).rows[0]!).slice(0, 9)).toEqual([
      0.5, 0.5, 0.5, 1.5, 2.5, 3.5, 0.5, 0.5, 0.5,
    ]);
    const filled = answer(section, { ...ANY, missing: -2 });
    expect(floats(filled.rows[0]!).slice(0, 9)).toEqual([-2, -2, -2, 1.5, 2.5, 3.5, -2, -2, -2]);
  });

  it('is refused when the state is too old, not there, or of no known age', () => {
    const section = asking([7n]);
    expect(codeOf(() => answer(section, { ...ANY, maxLagMs: 19 }))).toBe('STALE_REPLICA');
    expect(codeOf(() => answer(section, { ...ANY, maxLagMs: 20 }))).toBe('none');
    expect(codeOf(() => answer(section, { ...ANY, maxLagMs: 1e9 }, Number.POSITIVE_INFINITY))).toBe(
      'STALE_REPLICA',
    );
    const elsewhere = { position: () => undefined, shardAt: () => undefined };
    expect(codeOf(() => read(elsewhere, [{ g: 1, m: 0, section }], ANY))).toBe('STALE_REPLICA');
  });

  it('is refused when it is not one', () => {
    expect(codeOf(() => answer(asking([7n], undefined, 2)))).toBe('UNKNOWN_TABLE');
    expect(codeOf(() => answer(asking([7n], undefined, 1, 4)))).toBe('DIM_MISMATCH');
    expect(codeOf(() => answer(asking([2n ** 64n - 1n])))).toBe('KEY_RESERVED');
    expect(codeOf(() => answer(asking([2n ** 64n - 1n]), { ...ANY, missing: 1 }))).toBe('KEY_RESERVED');
    const section = asking([7n]);
    for (let bytes = 0; bytes < section.byteLength; bytes++)
      expect(codeOf(() => answer(section.slice(0, bytes), { ...ANY, missing: 1 }))).toBe('BAD_FRAME');
    const whole = section.slice();
    whole[4] = 1;
    expect(codeOf(() => answer(whole))).toBe('BAD_FRAME');
  });

  it('is refused beyond the limit, before anything is allocated', () => {
    const section = asking([7n]);
    new DataView(section.buffer, section.byteOffset).setUint32(16, MAX_READ_BYTES, true);
    expect(codeOf(() => answer(section))).toBe('LIMIT');
  });
});
