// Requests that the engine splits by shard and node: sections, rounds, and rows back to their places.
import { describe, expect, it } from 'vitest';
import { PushStatus } from '../../src/engine/native.js';
import { codeOf } from '../codes.js';
import { native, table } from './native.support.js';

describe('calls', () => {
  it('splits calls into sections by round and node, encodes them, and puts their rows back', () => {
    const shards = 6;
    const nodes = Uint32Array.of(7, 5, 7, 5, 9, 7);
    const keysOf = (n: number, salt: bigint) =>
      BigUint64Array.from({ length: n }, (_, i) => BigInt(i) * 7919n + salt);
    const counts = Uint32Array.from({ length: 300 }, (_, i) => 1 + (i % 9));
    const calls = [
      { table: 1, width: 2, keys: keysOf(300, 1n), rows: new Float32Array(600).map((_, i) => i), counts },
      { table: 2, width: 3, keys: keysOf(0, 0n), rows: new Float32Array(0) },
      { table: 3, width: 1, keys: keysOf(100, 5n), rows: new Float32Array(100).map((_, i) => -i), lr: 1 },
    ];
    const whole = native.split(calls, nodes, 1 << 20, 1 << 20);
    const runs = (split: typeof whole) =>
      Array.from({ length: split.runs.length / 5 }, (_, i) => [...split.runs.subarray(5 * i, 5 * i + 5)]);
    expect(runs(whole).map(([round, node, first, count]) => [round, node, first, count])).toEqual([
      [0, 5, 0, 2],
      [0, 7, 2, 3],
      [0, 9, 5, 1],
    ]);
    const shardOfSection = (split: typeof whole, i: number) => split.sections[4 * i];
    expect([0, 1, 2, 3, 4, 5].map((i) => shardOfSection(whole, i))).toEqual([1, 3, 0, 2, 5, 4]);

    // Every section is the one that `encodeRequest` makes of its keys, and all of a run lie together.
    const shard = native.createShard(native.createMemory(0), 0, 1, 1);
    for (const { table: id, width: dim } of calls)
      shard.addTable({
        ...table,
        id,
        dim,
        // The push brings another rate for this one.
        optimizer: { kind: 'sgd', lr: id === 3 ? 5 : 1 },
        initializer: { kind: 'zeros' },
        ...(id === 1 && { policy: { ttl: 100 } }),
      });
    const parts = calls.map((call) => ({ ...call, ...native.partition(call.keys, shards) }));
    for (const [, , first, count, bytes] of runs(whole)) {
      const encoded = native.encodeSections(0, calls, whole, first!, count!);
      expect(encoded.length).toBe(bytes);
      let at = 0;
      for (let i = first!; i < first! + count!; i++) {
        const [s, size] = [shardOfSection(whole, i)!, whole.sections[4 * i + 3]!];
        const alone = native.encodeRequest(
          0,
          parts.flatMap((part) => {
            const [start, end] = [part.starts[s]!, part.starts[s + 1]!];
            return start === end ? [] : [{ ...part, start, end }];
          }),
        );
        expect(encoded.subarray(at, at + size)).toEqual(alone);
        expect(shard.push(encoded.subarray(at, at + size))).toBe(PushStatus.APPLIED);
        at += size;
      }
    }

    // Counts are at their keys.
    const order = Uint32Array.from({ length: 300 }, (_, i) => i);
    const whole1 = { table: 1, width: 4, keys: calls[0]!.keys, order, start: 0, end: 300 };
    const rows = shard.pull(native.encodeRequest(1, [whole1])) as Uint8Array;
    const seen = new Uint32Array(rows.slice().buffer);
    expect(seen.filter((_, i) => i % 4 === 3)).toEqual(counts);

    // In small sections and rounds the same rows come, at the places of their keys.
    const pulled = calls.map(({ table, width, keys }) => ({ table, width, keys }));
    const small = native.split(pulled, nodes, 100, 700);
    expect(small.sections.length).toBeGreaterThan(2 * whole.sections.length);
    expect(runs(small).at(-1)![0]).toBeGreaterThan(3);
    const targets = calls.map(({ rows }) => new Float32Array(rows.length).fill(Number.NaN));
    const widths = Uint32Array.from(calls, ({ width }) => width);
    for (const [, , first, count] of runs(small)) {
      for (let i = first!; i < first! + count!; i++) {
        const rows = shard.pull(native.encodeSections(0, pulled, small, i, 1)) as Uint8Array;
        native.scatterSections(targets, widths, small, Uint32Array.of(i, rows.length), rows);
      }
    }
    expect(targets).toEqual(calls.map(({ rows }) => rows.map((value) => 0 - value)));
  });

  it('gives every section a row of its shard', () => {
    const nodes = new Uint32Array(4);
    const keys = BigUint64Array.from({ length: 64 }, (_, i) => BigInt(i) * 31n);
    const calls = [
      { table: 1, width: 1, keys, rows: new Float32Array(64) },
      { table: 9, width: 1, keys: BigUint64Array.of(40n, 41n, 42n, 43n), rows: new Float32Array(4).fill(1) },
    ];
    const split = native.split(calls, nodes, 60, 1 << 20, 1);
    expect(split.sections.length / 4).toBeGreaterThan(8);
    for (let i = 0; i < split.sections.length; i += 4) {
      const [s = 0, first = 0, count = 0] = split.sections.subarray(i, i + 3);
      const last = split.pieces.subarray(3 * (first + count - 1), 3 * (first + count));
      expect([...last]).toEqual([1, s, s + 1]);
    }
  });

  it('checks lists of sections that do not come from a split', () => {
    const calls = [{ table: 1, width: 1, keys: BigUint64Array.of(1n, 2n), rows: new Float32Array(2) }];
    const good = native.split(calls, new Uint32Array(1), 1000, 1000);
    const bytes = native.encodeSections(0, calls, good, 0, 1);
    const wrong: Partial<typeof good>[] = [
      { orders: [] },
      { orders: [Uint32Array.of(0)] },
      { orders: [Uint32Array.of(0, 2)] },
      { pieces: Uint32Array.of(1, 0, 2) },
      { pieces: Uint32Array.of(0, 2, 1) },
      { pieces: Uint32Array.of(0, 0, 3) },
      { pieces: Uint32Array.of(0, 0) },
      { sections: Uint32Array.of(0, 1, 1, bytes.length) },
      { sections: Uint32Array.of(0, 0xffffffff, 0xffffffff, bytes.length) },
      { sections: Uint32Array.of(0, 0, 1, bytes.length - 8) },
      { sections: Uint32Array.of(0, 0, 1) },
    ];
    for (const each of wrong)
      expect(codeOf(() => native.encodeSections(0, calls, { ...good, ...each }, 0, 1))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.encodeSections(0, calls, good, 0, 2))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.encodeSections(0, calls, good, 0xffffffff, 1))).toBe('BAD_ARGUMENT');
    const targets = [new Float32Array(2)];
    const widths = Uint32Array.of(1);
    const scatter = (items: number[], rows: number, split = good, into = targets) =>
      codeOf(() =>
        native.scatterSections(into, widths, split, Uint32Array.from(items), new Uint8Array(rows)),
      );
    expect(scatter([0, 8], 7)).toBe('BAD_FRAME');
    expect(scatter([0, 7], 8)).toBe('BAD_FRAME');
    expect(scatter([0, 8, 0, 0xffffffff], 16)).toBe('BAD_FRAME');
    expect(scatter([1, 8], 8)).toBe('BAD_ARGUMENT');
    expect(scatter([0, 8], 8, good, [new Float32Array(1)])).toBe('BAD_FRAME');
    expect(scatter([0, 8], 8, good, [])).toBe('BAD_ARGUMENT');
    for (const each of wrong.slice(0, 9)) expect(scatter([0, 8], 8, { ...good, ...each })).toMatch(/^BAD_/);
    const nodes = new Uint32Array(1);
    for (const make of [
      () => native.split(calls, new Uint32Array(0), 10, 10),
      () => native.split(calls, nodes, 0, 10),
      () => native.split(calls, nodes, 10, 2 ** 40),
      () => native.split(calls, nodes, 10, 10, 1),
      () => native.split(calls, nodes, 10, 10, 0),
      () => native.split([{ ...calls[0]!, rows: new Float32Array(3) }], nodes, 10, 10),
      () => native.split([calls[0]!, { table: 1, width: 1, keys: new BigUint64Array(1) }], nodes, 10, 10),
    ])
      expect(codeOf(make)).toBe('BAD_ARGUMENT');
  });
});
