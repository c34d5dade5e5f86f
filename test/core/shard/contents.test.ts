/** Content of blocks in memory that a frame is built around, or of its own where it does not fit. */
import { describe, expect, it } from 'vitest';
import { readBlocks } from '../../../src/core/shard/contents.js';
import type { AnswerMemory } from '../../../src/core/shard/host.js';
import { loadNative, type NativeShard } from '../../../src/engine/native.js';

const KEYS = 4096;

function shardOf(dim: number): NativeShard {
  const native = loadNative();
  const shard = native.createShard(native.createMemory(0), 0, 1, 1);
  const optimizer = { kind: 'sgd' as const, lr: 1 };
  shard.addTable({ id: 1, dim, optimizer, initializer: { kind: 'zeros' }, seed: 1 });
  const keys = BigUint64Array.from({ length: KEYS }, (_, i) => BigInt(i));
  const order = Uint32Array.from({ length: KEYS }, (_, i) => i);
  const rows = Float32Array.from({ length: KEYS * dim }, (_, i) => i + 1);
  const part = { table: 1, width: dim, keys, order, start: 0, end: KEYS, rows };
  shard.push(native.encodeRequest(0, [part]));
  shard.flush();
  return shard;
}

/** `count` blocks of rows, as pairs of column and index. */
const blocksOf = (count: number): Uint32Array =>
  Uint32Array.from({ length: 2 * count }, (_, i) => (i % 2 ? i >> 1 : 3));

class Host {
  readonly given: { memory: Uint8Array; took: Uint8Array[]; dropped: number }[] = [];

  contentMemory(bytes: number): AnswerMemory {
    const at = 8;
    const given = { memory: new Uint8Array(at + bytes).fill(0xaa), took: [] as Uint8Array[], dropped: 0 };
    this.given.push(given);
    const took = (rows: Uint8Array) => void given.took.push(rows);
    return { memory: given.memory, at, took, drop: () => void given.dropped++ };
  }
}

describe('content', () => {
  it('lies right after the list of its blocks, and is what is read alone', () => {
    const [shard, host, list] = [shardOf(8), new Host(), blocksOf(20)];
    const { present, lacking, parts } = readBlocks(shard, list, host);
    const alone = shard.read(list);
    expect([...present]).toEqual([...list]);
    expect(lacking).toHaveLength(0);
    expect(Buffer.compare(parts[1], alone.bytes)).toBe(0);
    expect(Buffer.compare(parts[0], new Uint8Array(list.buffer))).toBe(0);
    const [given] = host.given;
    expect([parts[0].buffer, parts[1].buffer]).toEqual([given!.memory.buffer, given!.memory.buffer]);
    expect([parts[0].byteOffset, parts[1].byteOffset]).toEqual([8, 8 + list.byteLength]);
    expect([given!.took, given!.dropped]).toEqual([[parts[1]], 0]);
  });

  it('is copied where there is little of it', () => {
    const [shard, host] = [shardOf(8), new Host()];
    expect(readBlocks(shard, blocksOf(2), host).present).toHaveLength(4);
    expect(host.given).toEqual([]);
  });

  it('has memory of its own where a row is larger than a block', () => {
    const [shard, host, list] = [shardOf(2048), new Host(), blocksOf(20)];
    const { parts } = readBlocks(shard, list, host);
    expect(Buffer.compare(parts[1], shard.read(list).bytes)).toBe(0);
    expect(parts[1].buffer).not.toBe(host.given[0]!.memory.buffer);
    expect([host.given[0]!.took, host.given[0]!.dropped]).toEqual([[], 1]);
  });

  it('is copied where a stranger asks for a million blocks, and where too much is held', () => {
    const [shard, host] = [shardOf(8), new Host()];
    const list = new Uint32Array(2 ** 21).fill(999);
    expect(() => readBlocks(shard, list, host)).toThrow(expect.objectContaining({ code: 'BAD_FRAME' }));
    expect(host.given).toEqual([]);
    const { parts } = readBlocks(shard, blocksOf(20), { contentMemory: () => undefined });
    expect(Buffer.compare(parts[1], shard.read(blocksOf(20)).bytes)).toBe(0);
  });

  it('gives its memory back when the list is none', () => {
    const [shard, host] = [shardOf(8), new Host()];
    const wrong = Uint32Array.from({ length: 40 }, () => 999);
    expect(() => readBlocks(shard, wrong, host)).toThrow(expect.objectContaining({ code: 'BAD_FRAME' }));
    expect([host.given[0]!.took, host.given[0]!.dropped]).toEqual([[], 1]);
  });
});
