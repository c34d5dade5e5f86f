// Large pushes and pulls go through the whole library without being copied into frames: one frame for each node, built around
// the sections of all its shards, and one around all their rows.
import { afterEach, expect, it, vi } from 'vitest';
import { PartBuffer } from '../../src/transport/part-memory.js';
import { client, cluster } from './support.js';

afterEach(() => {
  vi.restoreAllMocks();
});

it('requests and answers of several shards are sent from where they were written', async () => {
  const { address } = await cluster({ ps: 3, code: '2+1', groups: 6 });
  const trainer = await client(address);
  const table = await trainer.createTable({ name: 'rows', dim: 8, optimizer: { kind: 'sgd', lr: 1 } });
  const keys = BigUint64Array.from({ length: 20_000 }, (_, i) => BigInt(i) * 977n);
  const gradients = Float32Array.from({ length: keys.length * 8 }, (_, i) => (i % 1000) / 7);
  const before = await table.pull(keys);
  const expected = before.map((value, at) => Math.fround(value - gradients[at]!));

  const frame = vi.spyOn(PartBuffer.prototype, 'frame');
  const built = () => frame.mock.results.filter(({ value }) => value !== undefined).length;
  await table.push(keys, gradients);
  // At least: what is not answered for long is sent again.
  expect(built()).toBeGreaterThanOrEqual(3);
  // Again and again: memory is used again, and what was in it does not show.
  for (let i = 0; i < 3; i++) {
    frame.mockClear();
    const after = await table.pull(keys);
    expect(built()).toBeGreaterThanOrEqual(6);
    expect(Buffer.from(after.buffer).equals(Buffer.from(expected.buffer))).toBe(true);
  }
});
