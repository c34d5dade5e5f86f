/**
 * Recovery by rules 22 to 26: an owner solves equations of parities for its lost blocks. They come back bit
 * for bit, those on demand before the rest, while other shards serve.
 */
import { afterEach, describe, expect, it } from 'vitest';
import type { OptimizerSpec } from '../../../src/engine/native.js';
import { Cluster, type ClusterOptions, kind, type Part, tableSpec } from '../harness.js';

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({ k: 2, r: 1, spares: 1, ...options });
  return cluster;
};
afterEach(() => cluster.close());

const id = (index: number): number => cluster.nodes[index]!.id;
const ADAGRAD: OptimizerSpec = { kind: 'adagrad', lr: 0.37, eps: 1e-8, initialAccumulator: 0.1 };
const keys = (count: number, from = 1): number[] => Array.from({ length: count }, (_, i) => from + i);
/** One push of `count` rows to every shard. */
const fill = (count: number, value = 1): void => {
  const k = cluster.map.pools[0]!.k;
  cluster.client.push(
    Object.fromEntries(keys(k, 0).map((m) => [m, [{ keys: keys(count), value: value + m }]])),
  );
  cluster.settle();
};
const absentRows = (m = 0): number => cluster.owner(m).native.absentRowBlocks;

function* subsets(count: number, size: number, from = 0): Generator<number[]> {
  if (size === 0) yield [];
  else
    for (let i = from; i < count; i++) for (const rest of subsets(count, size - 1, i + 1)) yield [i, ...rest];
}

const patterns: { k: number; r: number; lost: number[] }[] = [];
for (const k of [1, 2, 3]) {
  for (const r of [1, 2]) {
    for (let size = 1; size <= r; size++)
      for (const lost of subsets(k + r, size)) patterns.push({ k, r, lost });
  }
}

describe('every loss that the code covers', () => {
  it.each(patterns)('k=$k r=$r, members $lost lost at once: bit for bit', ({ k, r, lost }) => {
    const tables = [tableSpec('t', ADAGRAD), tableSpec('u')];
    start({ k, r, spares: r, tables });
    for (let round = 0; round < 4; round++) {
      const items: Record<number, Part[]> = {};
      for (let m = 0; m < k; m++) {
        const value = 0.1 + round * 1.7 + m * 0.31;
        items[m] = [
          { keys: keys(3 + m, 1 + round * 2), value },
          { table: 2, keys: [round, 100 + m], value: -value },
        ];
      }
      expect(cluster.client.push(items).error).toBeUndefined();
      cluster.settle();
    }
    const before = keys(k, 0).map((m) => cluster.image(cluster.owner(m).native));
    expect(before.every((image) => image.some((byte) => byte !== 0))).toBe(true);
    for (const index of lost) cluster.crash(index, { noticed: false });
    for (const index of lost) cluster.notice(index);
    cluster.settle();
    cluster.advance(1500);
    for (const index of lost.filter((m) => m < k)) {
      expect(cluster.map.groups[0]!.data[index]!.node).not.toBe(id(index));
    }
    for (const [m, image] of before.entries())
      expect(cluster.image(cluster.owner(m).native).equals(image)).toBe(true);
    expect(cluster.checkParities()).toBeGreaterThan(0);
    expect(cluster.scheduler!.status().redundancy).toBe('full');
    if (lost.length === 2 && lost[1]! < k) {
      // Two data members: no parity alone can tell them apart, and one solution serves both owners.
      expect(cluster.sent('equation').some(({ message }) => message.lacking.length === 2)).toBe(true);
      expect(cluster.sent('install').length).toBeGreaterThan(0);
    }
  });

  it('a second member lost while the first is being decoded', () => {
    start({ k: 3, r: 2, spares: 2 });
    fill(6);
    const before = [0, 1, 2].map((m) => cluster.image(cluster.owner(m).native));
    const equations = cluster.hold(kind('equation'));
    cluster.crash(0);
    cluster.settle();
    cluster.crash(1);
    cluster.settle();
    equations.release();
    cluster.settle();
    cluster.advance(1500);
    expect([0, 1, 2].map((m) => cluster.image(cluster.owner(m).native).equals(before[m]!))).toEqual([
      true,
      true,
      true,
    ]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('updates that go on meanwhile are in the result, once', () => {
    const { client } = start();
    fill(8);
    const contents = cluster.hold(kind('content'));
    cluster.crash(0);
    cluster.settle();
    // The equations of shard 0 wait for content of shard 1, whose position moves on: the content is out of
    // date when it comes.
    for (const key of keys(8)) client.push({ 1: [{ keys: [key], value: 16 }] });
    cluster.settle();
    contents.release();
    cluster.settle();
    cluster.advance(1500);
    expect(absentRows()).toBe(0);
    for (const key of keys(8)) expect([cluster.read(0, key), cluster.read(1, key)]).toEqual([1, 18]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });
});

it('tells a sink of the tables that it asks about, and of no others', () => {
  const tables = Array.from({ length: 40 }, (_, i) => tableSpec(`t${i}`));
  start({ tables });
  for (const table of [7, 31]) cluster.client.push({ 0: [{ table, keys: keys(5), value: table }] });
  cluster.settle();
  cluster.crash(0);
  cluster.settle();
  expect(cluster.owner(0).complete).toBe(true);
  const asked = cluster.sent('recover').map(({ message }) => message.extents.map(([table]) => table));
  expect(asked.length).toBeGreaterThan(0);
  expect(asked.every((named) => named.length > 0)).toBe(true);
  expect(new Set(asked.flat())).toEqual(new Set([7, 31]));
});

describe('rule 18: content is the state after the newest delta', () => {
  it('an owner that is asked flushes its open batch first', () => {
    start();
    fill(4);
    const before = cluster.image(cluster.owner(0).native);
    cluster.autoFlush = false;
    const push = cluster.client.push({ 1: [{ keys: [1, 2, 3, 4], value: 16 }] });
    cluster.settle();
    cluster.crash(0);
    cluster.settle();
    cluster.advance(900);
    expect(push.done).toBe(true);
    expect(cluster.image(cluster.owner(0).native).equals(before)).toBe(true);
    const mark = cluster.history.length;
    expect(cluster.checkParities()).toBeGreaterThan(0);
    expect(cluster.sent('content', mark).length).toBeGreaterThan(0);
  });
});

describe('on demand before the rest', () => {
  it('answers a pull of one lost row while other blocks are still absent', () => {
    // At one byte a second the background asks for hardly any block.
    const { client } = start({ policy: { recoveryRate: 1, recoveryChunk: 1 } });
    fill(20);
    cluster.crash(0);
    cluster.settle();
    const pull = client.pull({ 0: [{ keys: [7] }] });
    cluster.settle();
    cluster.advance(300);
    expect([pull.done, pull.rows[0]?.[0]]).toEqual([true, 1]);
    expect(absentRows()).toBeGreaterThanOrEqual(8);
    expect(cluster.owner(0).recoveryStats()!.blocksOnDemand).toBeGreaterThan(0);
  });

  it('decodes all blocks of a push together, applies it whole, and keeps its client in line', () => {
    const { client } = start({ policy: { recoveryRate: 1, recoveryChunk: 1 } });
    fill(20);
    cluster.crash(0);
    cluster.settle();
    const pushes = [
      client.push({ 0: [{ keys: [1, 9, 17], value: 2 }] }),
      client.push({ 0: [{ keys: [1], value: 4 }] }),
    ];
    cluster.settle();
    cluster.advance(600);
    expect(pushes.map((push) => [push.done, push.error])).toEqual([
      [true, undefined],
      [true, undefined],
    ]);
    expect([1, 9, 17].map((key) => cluster.read(0, key))).toEqual([7, 3, 3]);
    expect(absentRows()).toBeGreaterThan(0);
  });

  it('serves pulls and pushes to other shards while recovery gets nowhere', () => {
    const { client } = start();
    fill(8);
    const held = cluster.hold(kind(['recover', 'equation', 'content']));
    cluster.crash(0);
    cluster.settle();
    const push = client.push({ 1: [{ keys: [3, 99], value: 8 }] });
    const waiting = client.pull({ 0: [{ keys: [3] }] });
    cluster.settle();
    expect([push.done, cluster.read(1, 3), cluster.read(1, 99)]).toEqual([true, 10, 8]);
    expect([waiting.done, absentRows()]).toEqual([false, 4]);
    held.release();
    cluster.settle();
    cluster.advance(600);
    expect([waiting.rows[0]?.[0], absentRows()]).toEqual([1, 0]);
  });

  it('a pull of a key that never existed is answered once the keys are back', () => {
    const { client } = start({ policy: { recoveryRate: 1, recoveryChunk: 1 } });
    fill(20);
    cluster.crash(0);
    cluster.settle();
    const pull = client.pull({ 0: [{ keys: [4711] }] });
    cluster.settle();
    cluster.advance(300);
    expect([pull.rows[0]?.[0], cluster.owner(0).native.absentKeyBlocks]).toEqual([0, 0]);
    expect(absentRows()).toBeGreaterThan(0);
  });
});

describe('rule 17: recovery belongs to a version of the group', () => {
  it('starts again when the version changes, and equations of the old one are ignored', () => {
    start({ k: 2, r: 2, spares: 1 });
    fill(8);
    const before = cluster.image(cluster.owner(0).native);
    const old = cluster.hold(kind('equation'));
    cluster.crash(0);
    cluster.settle();
    const { version } = cluster.map.groups[0]!;
    expect(old.packets.map(({ message }) => (message.t === 'equation' ? message.v : 0))).toContain(version);
    old.drop();
    const keysAbsent = () => cluster.owner(0).native.absentKeyBlocks;
    const absent = [keysAbsent(), absentRows()];
    const late = [...old.packets];
    const stop = cluster.lose(kind('equation'));
    const mark = cluster.history.length;
    cluster.crash(3);
    cluster.settle();
    for (const packet of late) cluster.deliver(packet);
    expect([keysAbsent(), absentRows()]).toEqual(absent);
    expect(absent).toEqual([1, 4]);
    const asked = cluster.sent('recover', mark).map(({ message }) => message.v);
    expect(asked.length).toBeGreaterThan(0);
    expect(Math.min(...asked)).toBeGreaterThan(version);
    stop();
    cluster.advance(900);
    expect(cluster.image(cluster.owner(0).native).equals(before)).toBe(true);
  });

  it('repeats what is not answered', () => {
    start();
    fill(8);
    const stop = cluster.lose(kind(['recover', 'want']));
    cluster.crash(0);
    cluster.settle();
    expect(absentRows()).toBe(4);
    stop();
    cluster.advance(1500);
    expect(absentRows()).toBe(0);
  });
});

describe('little is asked for twice', () => {
  const asked = (mark: number) =>
    cluster.sent('recover', mark).map(({ parts }) => [...new Uint32Array(parts[0]!.slice().buffer)]);

  it('who answers others is given time for the rest', () => {
    // At ten blocks a second, one at a time, answers come all the while.
    start({ policy: { recoveryRate: 40_960, recoveryChunk: 1 } });
    fill(60);
    cluster.crash(0);
    let held: number[] | undefined;
    const equation = cluster.hold(({ message, parts }) => {
      const block = [...new Uint32Array(parts[0]?.slice().buffer ?? new ArrayBuffer(0))];
      if (message.t !== 'equation' || block[0]! % 2 === 0) return false;
      held ??= block;
      return block.join() === held.join();
    });
    cluster.settle();
    for (let i = 0; i < 5 && !held; i++) cluster.advance(100);
    expect(held).toBeDefined();
    const mark = cluster.history.length;
    const again = () => asked(mark).filter((blocks) => blocks.join() === held!.join()).length;
    for (let i = 0; i < 6; i++) cluster.advance(100);
    expect(again()).toBe(0);
    // The shard is lost after all.
    equation.drop();
    for (let i = 0; i < 10; i++) cluster.advance(100);
    expect(again()).toBe(1);
    cluster.advance(9000);
    expect(absentRows()).toBe(0);
  });

  it('a block on its way in the background is not asked for again on demand', () => {
    const { client } = start();
    fill(8);
    const equations = cluster.hold(
      ({ message, parts }) =>
        message.t === 'equation' && new Uint32Array(parts[0]!.slice().buffer)[0]! % 2 === 1,
    );
    cluster.crash(0);
    cluster.settle();
    expect(equations.packets.length).toBeGreaterThan(0);
    const mark = cluster.history.length;
    const pull = client.pull({ 0: [{ keys: [3] }] });
    cluster.settle();
    expect([asked(mark), pull.done]).toEqual([[], false]);
    equations.release();
    cluster.settle();
    expect(pull.rows[0]?.[0]).toBe(1);
    expect(cluster.owner(0).recoveryStats()!.blocksOnDemand).toBe(1);
  });

  it('some of the background rides along with what is demanded', () => {
    // The rate is twenty blocks a second.
    const { client } = start({ policy: { recoveryRate: 81_920, recoveryChunk: 8 } });
    fill(200);
    cluster.crash(0);
    cluster.settle();
    client.pull({ 0: [{ keys: [199] }] });
    cluster.settle();
    // The background waits for the next demand, and its allowance grows.
    const mark = cluster.history.length;
    cluster.advance(80);
    expect(asked(mark)).toEqual([]);
    client.pull({ 0: [{ keys: [150] }] });
    cluster.settle();
    expect(asked(mark).map((blocks) => blocks.length / 2)).toEqual([4]);
    cluster.advance(200);
    expect(asked(mark).length).toBeGreaterThan(1);
  });

  it('what rides along is not held to the pace that leaves room for requests', () => {
    const { client } = start({ groups: 3, spares: 0, policy: { recoveryChunk: 8 } });
    fill(2000);
    // The new owner's node serves requests for other shards.
    for (let i = 0; i < 3; i++) {
      for (const g of [1, 2]) client.pull({ 0: [{ keys: [1] }], 1: [{ keys: [1] }] }, g);
      cluster.advance(100);
    }
    cluster.crash(0);
    cluster.settle();
    // The first allowance of the pace is used up.
    expect(absentRows()).toBeGreaterThan(10);
    const mark = cluster.history.length;
    for (const key of [1999, 1500]) client.pull({ 0: [{ keys: [key] }] });
    cluster.settle();
    expect(asked(mark).map((blocks) => blocks.length / 2)).toEqual([4, 4]);
  });
});

describe('limits', () => {
  it('the background keeps to its rate in the clock of the ticks', () => {
    start({ policy: { recoveryRate: 40_960, recoveryChunk: 1 } });
    fill(60);
    const blocks = (since: number) =>
      cluster.sent('recover', since).reduce((sum, { parts }) => sum + parts[0]!.byteLength / 8, 0);
    cluster.crash(0);
    cluster.settle();
    const mark = cluster.history.length;
    for (let i = 0; i < 10; i++) cluster.advance(100);
    // The rate is ten blocks a second, and an allowance of one burst.
    expect(blocks(mark)).toBeGreaterThanOrEqual(9);
    expect(blocks(mark)).toBeLessThanOrEqual(12);
    cluster.advance(9000);
    expect(absentRows()).toBe(0);
  });

  it('never asks for more than the window', () => {
    start({ policy: { recoveryWindow: 6, recoveryChunk: 2 } });
    fill(60);
    // Keys come back; equations for rows do not.
    const rows = cluster.hold(
      ({ message, parts }) =>
        message.t === 'equation' && new Uint32Array(parts[0]!.slice().buffer)[0]! % 2 === 1,
    );
    cluster.crash(0);
    cluster.settle();
    const rowBlocks = () => {
      const asked = cluster.sent('recover').map(({ parts }) => new Uint32Array(parts[0]!.slice().buffer));
      for (const blocks of asked) expect(blocks.length / 2).toBeLessThanOrEqual(2);
      const rows = asked.flatMap((blocks) =>
        [...blocks].filter((_, i) => i % 2 === 1 && blocks[i - 1]! % 2 === 1),
      );
      return new Set(rows).size;
    };
    // Right after a loss fewer blocks are under way than later, when there are no requests.
    expect(rowBlocks()).toBe(2);
    cluster.advance(200);
    expect(rowBlocks()).toBe(6);
    rows.release();
    cluster.advance(3000);
    expect(absentRows()).toBe(0);
  });
});
