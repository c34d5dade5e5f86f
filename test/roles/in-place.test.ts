// Large pushes and pulls go through the whole library without being copied into frames: one frame for each
// node, built around the sections of all its shards, and one around all their rows.
import { afterEach, expect, it, vi } from 'vitest';
import { internalsOf } from '../../src/library/client/connected.js';
import { PartBuffer } from '../../src/net/transport/part-memory.js';
import { client, cluster } from './support.js';

/** Private parts of a client's session. */
interface Insides {
  session: {
    held: Map<number, { items: []; bytes: number; done(): void }>;
    peers: { send(): void };
    run(effects: unknown[]): void;
  };
}

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

it('memory of a push is given back after all that the same step sends', async () => {
  const { address } = await cluster({ ps: 1, code: 'none', groups: 1 });
  const { session } = internalsOf(await client(address)) as unknown as Insides;
  const order: string[] = [];
  vi.spyOn(session.peers, 'send').mockImplementation(() => void order.push('sent'));
  session.held.set(77, { items: [], bytes: 0, done: () => order.push('given back') });
  session.run([
    { kind: 'released', ticket: 77 },
    { kind: 'send', to: 1, message: { t: 'status', id: 1 }, parts: [new Uint8Array(1)] },
  ]);
  expect(order).toEqual(['sent', 'given back']);
});

it('a pull whose memory is taken away fails alone', async () => {
  const { address } = await cluster({ ps: 1, code: 'none', groups: 1 });
  const trainer = await client(address);
  const table = await trainer.createTable({ name: 'rows', dim: 8 });
  const keys = BigUint64Array.from({ length: 100 }, (_, i) => BigInt(i));
  const into = new Float32Array(800);
  const [taken, other] = [trainer.pull([{ table, keys, into }]), table.pull(keys)];
  structuredClone(into.buffer, { transfer: [into.buffer] });
  await expect(taken).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  expect((await other).length).toBe(800);
});
