// The binding: what the engine's own tests (native/test) cannot see. Argument checks, error codes, close,
// loading in worker threads, and one round trip through every part of the surface.
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, it } from 'vitest';
import { type NativeShard, PushStatus } from '../../src/engine/native.js';
import { codeOf } from '../codes.js';
import { native, table } from './native.support.js';

const range = (count: number): Uint32Array => Uint32Array.from({ length: count }, (_, i) => i);
const pushSection = (keys: bigint[], value: number): Uint8Array =>
  native.encodeRequest(0, [
    {
      table: 3,
      width: 4,
      keys: BigUint64Array.from(keys),
      rows: new Float32Array(keys.length * 4).fill(value),
      order: range(keys.length),
      start: 0,
      end: keys.length,
    },
  ]);
const pullSection = (keys: bigint[]): Uint8Array =>
  native.encodeRequest(0, [
    {
      table: 3,
      width: 4,
      keys: BigUint64Array.from(keys),
      order: range(keys.length),
      start: 0,
      end: keys.length,
    },
  ]);
const pullRows = (shard: NativeShard, keys: bigint[]): Float32Array => {
  const answer = shard.pull(pullSection(keys));
  if (typeof answer === 'number') throw new Error(`pull answered ${answer}`);
  const rows = new Float32Array(keys.length * 4);
  expect(native.scatterRows(rows, 4, range(keys.length), 0, keys.length, answer, 0)).toBe(answer.length);
  return rows;
};
const newShard = (member: number, k: number, r: number, limit = 0): NativeShard => {
  const shard = native.createShard(native.createMemory(limit), member, k, r);
  shard.addTable(table);
  return shard;
};

afterEach(() => {
  native.forceIsa('auto');
});

describe('arrays', () => {
  it('partitions keys by shard, in input order', () => {
    const keys = BigUint64Array.from({ length: 200 }, (_, i) => BigInt(i) * 7919n);
    const { order, starts } = native.partition(keys, 5);
    expect([starts[0], starts[5], starts.length]).toEqual([0, 200, 6]);
    expect([...order].sort((a, b) => a - b)).toEqual([...range(200)]);
    for (let s = 0; s < 5; s++) {
      const part = order.slice(starts[s], starts[s + 1]);
      expect(part.length).toBeGreaterThan(0);
      expect([...part]).toEqual([...part].sort((a, b) => a - b));
      const again = native.partition(
        BigUint64Array.from(part, (i) => keys[i]!),
        5,
      );
      expect([...again.starts]).toEqual([0, 1, 2, 3, 4, 5].map((i) => (i > s ? part.length : 0)));
    }
    expect(codeOf(() => native.partition(keys, 0))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.partition(new Uint32Array(4) as unknown as BigUint64Array, 2))).toBe(
      'BAD_ARGUMENT',
    );
  });

  it('finds distinct keys, expands and sums rows', () => {
    const { keys, inverse } = native.unique(BigUint64Array.of(9n, 0n, 9n, 5n, 0n));
    expect([...keys]).toEqual([9n, 0n, 5n]);
    expect([...inverse]).toEqual([0, 1, 0, 2, 1]);
    const expanded = new Float32Array(10);
    native.expandRows(expanded, 2, Float32Array.of(1, 2, 3, 4, 5, 6), inverse);
    expect([...expanded]).toEqual([1, 2, 3, 4, 1, 2, 5, 6, 3, 4]);
    const sums = new Float32Array(6);
    native.sumRows(sums, 2, expanded, inverse);
    expect([...sums]).toEqual([2, 4, 6, 8, 5, 6]);
    const outside = Uint32Array.of(0, 1, 0, 3, 1);
    expect(codeOf(() => native.expandRows(expanded, 2, new Float32Array(6), outside))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.sumRows(sums, 2, expanded, outside))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.sumRows(sums, 2, new Float32Array(8), inverse))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.expandRows(new Float32Array(8), 2, sums, inverse))).toBe('BAD_ARGUMENT');
  });

  it('checks the parts of a request and the rows of an answer', () => {
    const part = {
      table: 3,
      width: 4,
      keys: BigUint64Array.of(1n),
      order: Uint32Array.of(0),
      start: 0,
      end: 1,
    };
    expect(native.encodeRequest(0, []).length).toBe(8);
    expect(codeOf(() => native.encodeRequest(0, [{ ...part, end: 2 }]))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.encodeRequest(0, [{ ...part, order: Uint32Array.of(1) }]))).toBe(
      'BAD_ARGUMENT',
    );
    expect(codeOf(() => native.encodeRequest(0, [{ ...part, rows: new Float32Array(3) }]))).toBe(
      'BAD_ARGUMENT',
    );
    expect(codeOf(() => native.encodeRequest(0, [{ ...part, rows: new Float32Array(4) }, part]))).toBe(
      'BAD_ARGUMENT',
    );
    const target = new Float32Array(4);
    const order = Uint32Array.of(0);
    expect(codeOf(() => native.scatterRows(target, 4, order, 0, 1, new Uint8Array(15), 0))).toBe('BAD_FRAME');
    expect(codeOf(() => native.scatterRows(target, 4, order, 0, 1, new Uint8Array(16), 8))).toBe('BAD_FRAME');
    expect(codeOf(() => native.scatterRows(target, 4, Uint32Array.of(1), 0, 1, new Uint8Array(16), 0))).toBe(
      'BAD_FRAME',
    );
    expect(codeOf(() => native.scatterRows(target, 4, order, 0, 2, new Uint8Array(32), 0))).toBe(
      'BAD_ARGUMENT',
    );
  });
});

describe('kernels', () => {
  it('gives the same bits on every instruction set', () => {
    const best = native.isa;
    const src = Uint8Array.from({ length: 333 }, (_, i) => (i * 31) & 255);
    const fast = new Uint8Array(333);
    const slow = new Uint8Array(333);
    native.mulAdd(fast, src, 77);
    expect(native.forceIsa('scalar')).toBe('scalar');
    expect(native.isa).toBe('scalar');
    native.mulAdd(slow, src, 77);
    expect(native.forceIsa('auto')).toBe(best);
    expect(fast).toEqual(slow);
    expect(fast.some((b) => b !== 0)).toBe(true);
    expect(codeOf(() => native.mulAdd(fast, src.subarray(1), 1))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.mulAdd(fast, src, 256))).toBe('BAD_ARGUMENT');
  });

  it('knows coefficients and row widths', () => {
    for (let member = 0; member < 4; member++) expect(native.coefficient(4, 2, 0, member)).toBe(1);
    expect(native.coefficient(4, 2, 1, 0)).toBe(1);
    expect(native.coefficient(4, 2, 1, 3)).not.toBe(1);
    expect(codeOf(() => native.coefficient(4, 2, 2, 0))).toBe('BAD_ARGUMENT');
    expect(native.rowWidth(16, { kind: 'sgd', lr: 1 })).toBe(16);
    expect(native.rowWidth(16, { kind: 'adam', lr: 1, beta1: 0.9, beta2: 0.99, eps: 1e-8 })).toBe(49);
    expect(codeOf(() => native.rowWidth(16, { kind: 'other' } as never))).toBe('BAD_ARGUMENT');
  });
});

describe('shard', () => {
  it('writes sections and answers where it is told to, if they fit there', () => {
    const shard = newShard(0, 1, 1);
    const keys = [5n, 6n, 7n];
    const section = pullSection(keys);
    const part = {
      table: 3,
      width: 4,
      keys: BigUint64Array.from(keys),
      order: range(3),
      start: 0,
      end: 3,
    };
    const rows = shard.pull(section) as Uint8Array;
    const memory = new Uint8Array(256).fill(0xee).subarray(8);
    const before = memory.slice();
    const encoded = native.encodeRequest(0, [part], memory, 16);
    expect([encoded.buffer, encoded.byteOffset]).toEqual([memory.buffer, 24]);
    expect(encoded).toEqual(section);
    const answer = shard.pull(section, memory, 248 - rows.byteLength) as Uint8Array;
    expect([answer.buffer, answer.byteOffset]).toEqual([memory.buffer, 256 - rows.byteLength]);
    expect(answer).toEqual(rows);
    before.set(section, 16);
    before.set(rows, 248 - rows.byteLength);
    expect(memory).toEqual(before);
    for (const at of [248 - rows.byteLength + 1, 248, 249, 4294967295]) {
      const elsewhere = shard.pull(section, memory, at) as Uint8Array;
      expect(elsewhere.buffer).not.toBe(memory.buffer);
      expect(elsewhere).toEqual(rows);
    }
    expect(memory).toEqual(before);
    expect(codeOf(() => shard.pull(section, new Uint32Array(64) as never, 0))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.pull(section, memory, -1))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.pull(section, memory, undefined))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.encodeRequest(0, [part], [] as never, 0))).toBe('BAD_ARGUMENT');
    structuredClone(memory.buffer, { transfer: [memory.buffer] });
    expect(shard.pull(section, memory, 0)).toEqual(rows);
  });

  it('pushes and pulls', () => {
    const shard = newShard(0, 1, 0);
    const initial = pullRows(shard, [0n, 7n]);
    expect(shard.dirty).toBe(false);
    // Sections may start at any address.
    const section = pushSection([7n, 7n], 1);
    const odd = new Uint8Array(section.length + 1);
    odd.set(section, 1);
    expect(shard.push(odd.subarray(1))).toBe(PushStatus.APPLIED);
    const rows = pullRows(shard, [0n, 7n]);
    expect(rows.slice(0, 4)).toEqual(initial.slice(0, 4));
    expect(rows.slice(4)).toEqual(initial.slice(4).map((x) => Math.fround(x - 1)));
    expect([...shard.keys(3, 0, 10).keys]).toEqual([7n]);
    expect(shard.keys(3, 0, 10).next).toBe(-1);
    expect(shard.extents()).toEqual([[3, 16, 1]]);
    expect(shard.stats()).toEqual([{ table: 3, rows: 1, extent: 1, absentKeyBlocks: 0, absentRowBlocks: 0 }]);
    expect(shard.rows).toBe(1);
    expect(shard.extentsOf(Uint32Array.of(6, 0, 7, 5, 8, 1))).toEqual([[3, 16, 1]]);
    expect(shard.dirty).toBe(true);
    expect(shard.openBytes).toBe(shard.flush().length);
    expect(shard.flush().length).toBe(8);
    // An owner without sinks drops the delta: the rows stay as they are.
    expect(shard.push(pushSection([7n], 1))).toBe(PushStatus.APPLIED);
    const trained = pullRows(shard, [7n]);
    shard.dropBatch();
    expect([shard.dirty, shard.flush().length]).toEqual([false, 8]);
    expect(pullRows(shard, [7n])).toEqual(trained);
    expect(shard.push(pushSection([2n ** 64n - 1n], 1))).toBe(PushStatus.KEY_RESERVED);
    expect(shard.push(new Uint8Array(5))).toBe(PushStatus.BAD_FRAME);
    expect(shard.pull(new Uint8Array(0))).toBe(PushStatus.BAD_FRAME);
  });

  it('gives keys in order, page by page, from any key on', () => {
    const shard = newShard(0, 2, 1);
    shard.addTable(table);
    const greatest = 2n ** 64n - 2n;
    const keys = [0n, 1n, 7n, 2n ** 63n - 1n, 2n ** 63n, greatest - 1n, greatest];
    expect(
      shard.push(
        pushSection(
          [5n, 4n].map((i) => keys[Number(i)]!),
          1,
        ),
      ),
    ).toBe(PushStatus.APPLIED);
    expect(
      shard.push(
        pushSection(
          [6n, 0n, 3n, 1n, 2n].map((i) => keys[Number(i)]!),
          1,
        ),
      ),
    ).toBe(PushStatus.APPLIED);
    for (const max of [1, 2, 3, 6, 7, 100]) {
      const found: bigint[] = [];
      for (let from: bigint = 0n; from !== -1n; ) {
        const page = shard.keysInOrder(3, from, max);
        expect(page.keys.length).toBeLessThanOrEqual(max);
        found.push(...page.keys);
        from = BigInt(page.next);
      }
      expect(found).toEqual(keys);
    }
    expect(shard.keysInOrder(3, 1n, 2)).toEqual({ keys: BigUint64Array.of(1n, 7n), next: 8n });
    expect(shard.keysInOrder(3, 8n, 1)).toEqual({ keys: BigUint64Array.of(keys[3]!), next: 2n ** 63n });
    expect(shard.keysInOrder(3, greatest, 1)).toEqual({ keys: BigUint64Array.of(greatest), next: -1 });
    expect(shard.keysInOrder(3, 2n ** 64n - 1n, 1)).toEqual({ keys: new BigUint64Array(0), next: -1 });
  });

  it('says what is wrong with arguments', () => {
    const shard = newShard(0, 2, 1);
    shard.addTable(table);
    expect(codeOf(() => shard.addTable({ ...table, dim: 5 }))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.addTable({ ...table, id: 4, seed: 0.5 }))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.addTable({ ...table, id: 4, dim: 0 }))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.push('text' as unknown as Uint8Array))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.read(Uint32Array.of(6)))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.read(Uint32Array.of(8, 0)))).toBe('BAD_FRAME');
    expect(codeOf(() => shard.install(Uint32Array.of(6, 0), new Uint8Array(10)))).toBe('BAD_FRAME');
    expect(codeOf(() => shard.keys(9, 0, 1))).toBe('UNKNOWN_TABLE');
    expect(codeOf(() => shard.keysInOrder(9, 0n, 1))).toBe('UNKNOWN_TABLE');
    for (const least of [-1n, 2n ** 64n, 0, 'x'])
      expect(codeOf(() => shard.keysInOrder(3, least as bigint, 1))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => shard.keysInOrder(3, 0n, 0))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.createShard({} as never, 0, 2, 1))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.createShard(native.createMemory(0), 2, 2, 1))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.createSink(native.createMemory(0), 2, 1, 1, true))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => native.createMemory(-1))).toBe('BAD_ARGUMENT');
  });

  it('refuses a push beyond the memory limit and gives memory back at close', () => {
    const memory = native.createMemory(20_000);
    const shard = native.createShard(memory, 0, 1, 0);
    shard.addTable(table);
    expect(shard.push(pushSection([1n], 1))).toBe(PushStatus.APPLIED);
    const used = memory.usedBytes;
    const many = Array.from({ length: 2000 }, (_, i) => BigInt(i + 5));
    expect(shard.push(pushSection(many, 1))).toBe(PushStatus.MEMORY_LIMIT);
    expect(memory.usedBytes).toBe(used);
    expect(shard.bytes).toBe(used);
    expect(memory.limitBytes).toBe(20_000);
    shard.close();
    shard.close();
    expect(memory.usedBytes).toBe(0);
    expect(codeOf(() => shard.push(pushSection([1n], 1)))).toBe('CLOSED');
    expect(codeOf(() => shard.dirty)).toBe('CLOSED');
    expect(codeOf(() => shard.extents())).toBe('CLOSED');
  });
});

describe('recovery', () => {
  it('brings two lost members back from two parities, bit for bit', () => {
    const memory = native.createMemory(0);
    const shards = [0, 1, 2].map((member) => newShard(member, 3, 2));
    const sinks = [0, 1].map((parity) => native.createSink(memory, 3, 2, parity, true));
    const keys = Array.from({ length: 900 }, (_, i) => BigInt(i));
    shards.forEach((shard, member) => {
      expect(shard.push(pushSection(keys, member + 0.25))).toBe(PushStatus.APPLIED);
      const delta = shard.flush();
      for (const sink of sinks) expect(sink.apply(member, delta)).toEqual(new Uint32Array(0));
    });
    const before = shards.map((shard) => pullRows(shard, keys));
    for (const member of [0, 2]) {
      const fresh = newShard(member, 3, 2);
      for (const [id, stride, extent] of sinks[0]!.extents(member)) {
        expect(stride).toBe(16);
        fresh.adopt(id, extent);
      }
      expect(fresh.push(pushSection([1n], 1))).toBe(PushStatus.ABSENT);
      expect([...fresh.missing()]).toEqual([6, 0, 6, 1]);
      shards[member] = fresh;
    }
    const all = sinks[0]!.allBlocks(0, 1000);
    expect(all.length / 2).toBe(shards[0]!.absentKeyBlocks + shards[0]!.absentRowBlocks);
    for (const [parity, sink] of sinks.entries()) {
      expect(sink.recover(0, all)).toEqual(all);
      expect(sink.recover(2, all)).toEqual(new Uint32Array(0));
      expect(sink.nextPending(1, 1000)).toEqual(all);
      const { present, bytes, lacking } = shards[1]!.read(all);
      expect([present, lacking.length]).toEqual([all, 0]);
      expect(sink.content(1, present, bytes)).toBe(0);
      const completed = sink.takeCompleted();
      expect(completed.length).toBe(1);
      const { lacking: without, ok, requesters, checked, blocks, bytes: sums } = completed[0]!;
      expect({ without, ok, requesters, checked }).toEqual({
        without: [0, 2],
        ok: true,
        requesters: [0, 2],
        checked: false,
      });
      const solved = shards[0]!.addEquations(parity, 2, without, ok, blocks, sums);
      expect(solved.installed).toBe(parity === 1 ? all.length / 2 : 0);
      for (const other of solved.others)
        expect(shards[other.member]!.install(other.blocks, other.bytes)).toBe(all.length / 2);
    }
    for (const member of [0, 1, 2]) {
      expect(shards[member]!.keysReady && shards[member]!.tableReady(3)).toBe(true);
      expect(pullRows(shards[member]!, keys)).toEqual(before[member]);
    }
    const sink = sinks[1]!;
    sink.check(all);
    for (const member of [0, 1, 2]) sink.content(member, all, shards[member]!.read(all).bytes);
    expect(
      sink.takeCompleted().map(({ lacking, checked, nonZero }) => ({ lacking, checked, nonZero })),
    ).toEqual([{ lacking: [], checked: true, nonZero: 0 }]);
    sink.close();
    expect(codeOf(() => sink.complete)).toBe('CLOSED');
  });

  it('rebuilds a parity from content', () => {
    const shard = newShard(0, 1, 1);
    shard.push(pushSection([1n, 2n], 1));
    shard.flush();
    const sink = native.createSink(native.createMemory(0), 1, 1, 0, false);
    expect(sink.complete).toBe(false);
    expect(sink.apply(0, shard.flush())).toBe(PushStatus.BAD_FRAME);
    sink.start(0, shard.extents());
    const wanted = sink.nextExcluded(0, 10);
    expect([...wanted]).toEqual([6, 0, 7, 0]);
    expect(sink.excludedBlocks(0)).toBe(2);
    expect(sink.content(0, wanted, shard.read(wanted).bytes)).toBe(2);
    expect(sink.complete).toBe(true);
    sink.check(wanted);
    sink.lacking(0, wanted);
    const [group] = sink.takeCompleted();
    expect(group!.bytes).toEqual(shard.read(wanted).bytes);
    expect(group!.nonZero).toBe(2);
    expect(codeOf(() => sink.recover(0, Uint32Array.of(20, 0)))).toBe('BAD_FRAME');
    expect(codeOf(() => sink.recover(1, wanted))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => sink.start(0, [[3, 16]] as never))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => sink.learn(0, [[3, 32, 1]]))).toBe('DIM_MISMATCH');
  });
});

describe('worker threads', () => {
  it('loads in several threads at once, each with objects of its own', async () => {
    const addon = process.env.KINTSUGI_ADDON
      ? createRequire(import.meta.url).resolve(resolve(process.env.KINTSUGI_ADDON))
      : resolve(dirname(fileURLToPath(import.meta.url)), '../../build/Release/kintsugi.node');
    const body = `
      const { parentPort, workerData } = require('node:worker_threads');
      const native = require(workerData.addon);
      const shard = native.createShard(native.createMemory(0), 0, 1, 0);
      shard.addTable(workerData.table);
      const status = shard.push(workerData.section);
      parentPort.postMessage([status, shard.stats()[0].rows]);`;
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => {
        const worker = new Worker(body, {
          eval: true,
          workerData: { addon, table, section: pushSection([1n, 2n], 1) },
        });
        return new Promise((done, failed) => {
          let answer: unknown;
          worker.on('message', (message) => {
            answer = message;
          });
          worker.on('error', failed);
          worker.on('exit', (code) => (code ? failed(new Error(`exit ${code}`)) : done(answer)));
        });
      }),
    );
    expect(answers).toEqual(Array(4).fill([PushStatus.APPLIED, 2]));
  });
});
