// The code by properties: every loss pattern that a k+r code covers is decoded bit for bit, through the same
// calls that the protocol makes; and sections are split, encoded, answered and scattered without loss.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type BlockList,
  type EngineTable,
  loadNative,
  type NativeShard,
  type NativeSink,
  PushStatus,
  type SectionPart,
} from '../../src/engine/native.js';

const native = loadNative();
const MAX_BLOCKS = 1 << 20;
const KEYS = 40;
const tables: EngineTable[] = [
  {
    id: 0,
    dim: 3,
    optimizer: { kind: 'adagrad', lr: 0.1, eps: 1e-8, initialAccumulator: 0.1 },
    initializer: { kind: 'uniform', low: -1, high: 1 },
    seed: 3,
  },
  {
    id: 4,
    dim: 1030, // a row is a block of its own
    optimizer: { kind: 'sgd', lr: 0.5 },
    initializer: { kind: 'zeros' },
    seed: 4,
  },
];
const range = (count: number): Uint32Array => Uint32Array.from({ length: count }, (_, i) => i);

/** Keys and rows of one member, different for every (member, salt). */
function contentOf(member: number, salt: number): SectionPart[] {
  return tables.map(({ id, dim }) => {
    const count = id === 0 ? KEYS : 2;
    const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(i * 7 + member * 1000));
    const rows = Float32Array.from({ length: count * dim }, (_, i) =>
      Math.fround(Math.sin((i + 1) * (member + 2) + salt)),
    );
    return { table: id, width: dim, keys, rows, order: range(count), start: 0, end: count };
  });
}

class Group {
  readonly memory = native.createMemory(0);
  readonly shards: NativeShard[];
  readonly sinks: NativeSink[];

  constructor(
    readonly k: number,
    readonly r: number,
  ) {
    this.shards = Array.from({ length: k }, (_, m) => this.birth(m));
    this.sinks = Array.from({ length: r }, (_, j) => native.createSink(this.memory, k, r, j, true));
  }

  birth(m: number): NativeShard {
    const shard = native.createShard(this.memory, m, this.k, this.r);
    for (const table of tables) shard.addTable(table);
    return shard;
  }

  push(m: number, salt: number): void {
    expect(this.shards[m]!.push(native.encodeRequest(0, contentOf(m, salt)))).toBe(PushStatus.APPLIED);
    const delta = this.shards[m]!.flush();
    for (const sink of this.sinks) expect(typeof sink.apply(m, delta)).toBe('object');
  }

  /** Every block of a member, as the owner has it. */
  blocks(m: number): { list: BlockList; bytes: Uint8Array } {
    const pairs: number[] = [];
    for (const [table, stride, extent] of this.shards[m]!.extents()) {
      const perBlock = Math.max(1, Math.floor(4096 / stride));
      for (let i = 0; i < Math.ceil(extent / 512); i++) pairs.push(table * 2, i);
      for (let i = 0; i < Math.ceil(extent / perBlock); i++) pairs.push(table * 2 + 1, i);
    }
    const list = Uint32Array.from(pairs);
    const { bytes, lacking } = this.shards[m]!.read(list);
    expect(lacking.length).toBe(0);
    return { list, bytes };
  }

  /** The members and parities of the mask (members first) are gone; empty ones take their places. */
  lose(mask: number): void {
    const survivor = this.sinks.find((_, j) => !((mask >> (this.k + j)) & 1));
    for (let m = 0; m < this.k; m++) {
      if (!((mask >> m) & 1)) continue;
      const extents = survivor!.extents(m);
      this.shards[m]!.close();
      this.shards[m] = this.birth(m);
      for (const [table, , extent] of extents) this.shards[m]!.adopt(table, extent);
    }
    for (let j = 0; j < this.r; j++) {
      if (!((mask >> (this.k + j)) & 1)) continue;
      this.sinks[j]!.close();
      const sink = native.createSink(this.memory, this.k, this.r, j, false);
      for (let m = 0; m < this.k; m++) sink.start(m, this.shards[m]!.extents());
      this.sinks[j] = sink;
    }
  }

  answer(sink: NativeSink, m: number, wanted: BlockList): void {
    const { present, bytes, lacking } = this.shards[m]!.read(wanted);
    sink.content(m, present, bytes);
    sink.lacking(m, lacking);
  }

  /** One request to every parity, led by each new owner in turn, and the rebuilding of parities. */
  recover(): void {
    for (const [m, shard] of this.shards.entries()) {
      for (const kind of [0, 1] as const) {
        const wanted = shard.nextAbsent(kind, MAX_BLOCKS);
        for (const [j, sink] of this.sinks.entries()) {
          sink.recover(m, shard.filterAbsent(wanted));
          for (let other = 0; other < this.k; other++)
            this.answer(sink, other, sink.nextPending(other, MAX_BLOCKS));
          for (const { lacking, ok, requesters, blocks, bytes } of sink.takeCompleted()) {
            expect(requesters).toEqual([m]);
            const { others, stuck } = shard.addEquations(j, this.r, lacking, ok, blocks, bytes);
            expect(stuck.length).toBe(0);
            for (const solved of others) this.shards[solved.member]!.install(solved.blocks, solved.bytes);
          }
        }
        expect(shard.nextAbsent(kind, MAX_BLOCKS).length).toBe(0);
      }
    }
    for (const sink of this.sinks) {
      for (let m = 0; m < this.k; m++) this.answer(sink, m, sink.nextExcluded(m, MAX_BLOCKS));
      expect(sink.complete).toBe(true);
    }
  }

  /** Blocks of the parities that are not the sum of their members. */
  mismatches(): number {
    let count = 0;
    for (const sink of this.sinks) {
      const blocks = sink.check(sink.allBlocks(0, MAX_BLOCKS));
      for (let m = 0; m < this.k; m++) this.answer(sink, m, blocks);
      for (const group of sink.takeCompleted()) count += group.nonZero;
    }
    return count;
  }
}

const bits = (mask: number): number => {
  let count = 0;
  for (let left = mask; left; left &= left - 1) count++;
  return count;
};
const codes: [k: number, r: number][] = [];
for (let k = 1; k <= 6; k++) for (let r = 1; r <= 3; r++) codes.push([k, r]);

describe('Reed-Solomon', () => {
  it.each(codes)(
    '%i+%i decodes every loss pattern bit for bit, and every parity is right afterwards',
    (k, r) => {
      const group = new Group(k, r);
      for (let m = 0; m < k; m++) group.push(m, 0);
      let patterns = 0;
      for (let mask = 1; mask < 1 << (k + r); mask++) {
        if (bits(mask) > r) continue;
        // Different content in every round; members that push differently have different extents.
        group.push(patterns % k, ++patterns);
        const before = group.shards.map((_, m) => group.blocks(m));
        group.lose(mask);
        group.recover();
        for (const [m, { list, bytes }] of before.entries()) {
          const after = group.shards[m]!.read(list);
          expect(Buffer.compare(after.bytes, bytes), `loss pattern ${mask.toString(2)}, member ${m}`).toBe(0);
        }
        expect(group.mismatches(), `loss pattern ${mask.toString(2)}`).toBe(0);
      }
      let expected = 0;
      for (let mask = 1; mask < 1 << (k + r); mask++) if (bits(mask) <= r) expected++;
      expect(patterns).toBe(expected);
    },
  );

  it('of one loss too many says so instead of decoding', () => {
    const group = new Group(3, 1);
    for (let m = 0; m < 3; m++) group.push(m, 1);
    group.lose(0b011);
    const [shard] = group.shards;
    const [sink] = group.sinks;
    sink!.recover(0, shard!.nextAbsent(0, MAX_BLOCKS));
    for (let m = 0; m < 3; m++) group.answer(sink!, m, sink!.nextPending(m, MAX_BLOCKS));
    const [done] = sink!.takeCompleted();
    expect(done!.lacking).toEqual([0, 1]);
    const answer = shard!.addEquations(0, 1, done!.lacking, done!.ok, done!.blocks, done!.bytes);
    expect([answer.installed, answer.stuck]).toEqual([0, done!.blocks]);
    expect(shard!.keysReady).toBe(false);
  });
});

describe('sections', () => {
  const keyArray = fc
    .array(fc.oneof(fc.bigInt({ min: 0n, max: 2n ** 64n - 2n }), fc.bigInt({ min: 0n, max: 20n })), {
      maxLength: 80,
    })
    .map((keys) => BigUint64Array.from(keys));

  it('are split by shard, pushed whole, pulled and scattered back to where they were', () => {
    fc.assert(
      fc.property(keyArray, fc.integer({ min: 1, max: 9 }), (input, shardCount) => {
        const { keys, inverse } = native.unique(input);
        const width = native.rowWidth(tables[0]!.dim, tables[0]!.optimizer);
        const rows = Float32Array.from({ length: keys.length * width }, (_, i) => i * 0.5 - 3);
        const { order, starts } = native.partition(keys, shardCount);
        expect([...order].sort((a, b) => a - b)).toEqual([...range(keys.length)]);
        const back = new Float32Array(rows.length);
        const memory = native.createMemory(0);
        for (let s = 0; s < shardCount; s++) {
          const [start, end] = [starts[s]!, starts[s + 1]!];
          const shard = native.createShard(memory, 0, 1, 0);
          shard.addTable(tables[0]!);
          const part = { table: 0, width, keys, order, start, end };
          // At every address: sections lie where a message puts them.
          const section = native.encodeRequest(1, [{ ...part, rows }]);
          const shifted = new Uint8Array(section.length + s + 1).subarray(s + 1);
          shifted.set(section);
          expect(shard.push(shifted)).toBe(PushStatus.APPLIED);
          const answer = shard.pull(native.encodeRequest(1, [part])) as Uint8Array;
          expect(native.scatterRows(back, width, order, start, end, answer, 0)).toBe(answer.length);
          expect(shard.stats()[0]!.rows).toBe(end - start);
          shard.close();
        }
        expect(back).toEqual(rows);
        expect(memory.usedBytes).toBe(0);
        const expanded = new Float32Array(input.length * width);
        native.expandRows(expanded, width, back, inverse);
        for (const [i, key] of input.entries()) {
          const first = keys.indexOf(key);
          expect(inverse[i]).toBe(first);
          expect(expanded[i * width]).toBe(rows[first * width]);
        }
      }),
      { numRuns: 150 },
    );
  });

  it('of any bytes are answered by a status, and a refused push changes nothing', () => {
    const memory = native.createMemory(0);
    const shard = native.createShard(memory, 0, 2, 1);
    for (const table of tables) shard.addTable(table);
    shard.push(native.encodeRequest(0, contentOf(0, 1)));
    shard.flush();
    const before = [shard.extents(), memory.usedBytes];
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 120 }), fc.nat(3), (bytes, tableCount) => {
        const section = Uint8Array.from([tableCount, 0, 0, 0, 0, 0, 0, 0, ...bytes]);
        const status = shard.push(section);
        if (status !== PushStatus.APPLIED) expect(shard.dirty).toBe(false);
        else shard.flush();
        const answer = shard.pull(section);
        if (typeof answer === 'number') expect(answer).not.toBe(PushStatus.APPLIED);
      }),
      { numRuns: 2000 },
    );
    expect([shard.extents(), memory.usedBytes]).toEqual(before);
  });
});
