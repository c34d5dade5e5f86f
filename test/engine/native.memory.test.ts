/**
 * Memory and addresses of a process with the addon, measured in a process of its own: what tables without
 * rows cost, and what happens where the system refuses more.
 */
import { execFileSync } from 'node:child_process';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

const ADDON = process.env.KINTSUGI_ADDON ?? resolve(import.meta.dirname, '../../build/Release/kintsugi.node');
const MIB = 1 << 20;
const PRELUDE = `
  const fs = require('node:fs');
  const native = require(${JSON.stringify(ADDON)});
  const memory = native.createMemory(0);
  const table = (id) => ({
    id, dim: 16, optimizer: { kind: 'sgd', lr: 1 }, initializer: { kind: 'zeros' }, seed: 1,
  });
  const bytes = (name) =>
    Number(new RegExp(name + ':\\\\s+(\\\\d+)').exec(fs.readFileSync('/proc/self/status', 'utf8'))[1]) * 1024;
  const push = (id, key) => native.encodeRequest(0, [{
    table: id, width: 16, keys: BigUint64Array.of(key), rows: new Float32Array(16).fill(1),
    order: Uint32Array.of(0), start: 0, end: 1,
  }]);
  const codeOf = (call) => {
    try { return call() ?? 'done'; } catch (error) { return error.code; }
  };
`;

/** Runs a script and parses the JSON that it prints. `addressesMiB` limits the addresses of the process. */
function run(script: string, addressesMiB?: number): Record<string, unknown> {
  const limit = addressesMiB === undefined ? '' : `ulimit -v ${addressesMiB * 1024}; `;
  const command = `${limit}exec "$0" --expose-gc -e "$1"`;
  const out = execFileSync('bash', ['-c', command, process.execPath, PRELUDE + script], { encoding: 'utf8' });
  return JSON.parse(out);
}

describe('4,096 tables in 20 shards', () => {
  it('cost at most 4 KiB each without rows, and no addresses to speak of with some', () => {
    const { empty, filled, addresses, refused, rows, used } = run(`
      const before = [bytes('VmRSS'), bytes('VmSize')];
      const shards = Array.from({ length: 20 }, () => native.createShard(memory, 0, 1, 1));
      for (const shard of shards) for (let id = 0; id < 4096; id++) shard.addTable(table(id));
      const empty = bytes('VmRSS') - before[0];
      // A row in every table of one shard: more pairs with rows than a process once had addresses for.
      let refused = 0;
      for (let id = 0; id < 4096; id++) if (shards[3].push(push(id, 7n)) !== 0) refused++;
      console.log(JSON.stringify({
        empty, refused,
        filled: bytes('VmRSS') - before[0] - empty,
        addresses: bytes('VmSize') - before[1],
        rows: shards.map((shard) => shard.stats().reduce((sum, { rows }) => sum + rows, 0)),
        used: memory.usedBytes / shards[3].bytes,
      }));
    `);
    expect(empty).toBeLessThan(20 * 4096 * 4096);
    expect(empty).toBeLessThan(400 * MIB);
    expect(filled).toBeLessThan(4096 * 20_000);
    expect(addresses).toBeLessThan(1024 * MIB);
    expect(refused).toBe(0);
    expect(rows).toEqual(Array.from({ length: 20 }, (_, s) => (s === 3 ? 4096 : 0)));
    expect(used).toBe(1);
  });
});

describe('where the system refuses memory', () => {
  it('a sink and an adopting shard answer MEMORY_LIMIT, and what is there goes on', () => {
    // Node itself needs some addresses; a column of 2^29 rows of 64 bytes needs 32 GiB.
    const answers = run(
      `
      const shard = native.createShard(memory, 0, 1, 1);
      shard.addTable(table(1));
      shard.push(push(1, 7n));
      const delta = shard.flush();
      const huge = Uint8Array.from(delta);
      new DataView(huge.buffer).setUint32(16, 2 ** 29, true);
      const sink = native.createSink(memory, 1, 1, 0, true);
      const other = native.createShard(memory, 0, 1, 1);
      other.addTable(table(1));
      const used = memory.usedBytes;
      console.log(JSON.stringify({
        apply: sink.apply(0, huge),
        start: codeOf(() => sink.start(0, [[1, 64, 2 ** 29]])),
        learn: codeOf(() => sink.learn(0, [[1, 64, 2 ** 29]])),
        adopt: codeOf(() => other.adopt(1, 2 ** 29)),
        charged: memory.usedBytes - used,
        fits: sink.apply(0, delta).length,
        extents: [sink.extents(0), other.extents()],
      }));
    `,
      24 * 1024,
    );
    expect(answers).toEqual({
      apply: 5,
      start: 'MEMORY_LIMIT',
      learn: 'MEMORY_LIMIT',
      adopt: 'MEMORY_LIMIT',
      charged: 0,
      fits: 0,
      extents: [[[1, 64, 1]], [[1, 64, 0]]],
    });
  });
});

it.runIf(process.platform === 'linux')('freed memory is kept, and given back when that is asked for', () => {
  const { used, kept, left } = run(`
    const start = bytes('VmRSS');
    let buffers = Array.from({ length: 2000 }, (_, i) => new Uint8Array(100_000).fill(1));
    const keep = buffers.filter((_, i) => i % 100 === 0);
    const used = bytes('VmRSS') - start;
    buffers = undefined;
    for (let n = 0; n < 4; n++) globalThis.gc();
    setTimeout(() => {
      const kept = bytes('VmRSS') - start;
      native.trimMemory();
      console.log(JSON.stringify({ used, kept, left: bytes('VmRSS') - start, keep: keep.length }));
    }, 100);
  `) as Record<string, number>;
  expect(used).toBeGreaterThan(180 * MIB);
  expect(kept).toBeGreaterThan(100 * MIB);
  expect(left).toBeLessThan(20 * MIB);
});
