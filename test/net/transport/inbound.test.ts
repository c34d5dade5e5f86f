/** Frames that have no room yet take the memory that is charged for them, however small their pieces are. */
import { expect, it } from 'vitest';
import { ReceivedBytes } from '../../../src/core/shared/received-bytes.js';
import { Inbound, openingOf } from '../../../src/net/transport/inbound.js';

const MIB = 1 << 20;

it('pieces of one byte that wait for room take about their bytes, and are put together right', () => {
  const account = new ReceivedBytes(32 * MIB);
  const memory = { take: (bytes: number) => new Uint8Array(bytes), giveBack: () => {} };
  const inbound = (kind: 'large' | 'small') => {
    const link = account.open(kind);
    return { link, side: new Inbound(link, memory, 64 * MIB) };
  };
  const [first, late] = [inbound('large'), inbound('small')];
  first.side.take(openingOf(16 * MIB));
  const total = 8 * MIB;
  late.side.take(openingOf(total));
  late.link.due();
  const count = 500_000;
  const piece = new Uint8Array(1);
  const used = (): number => process.memoryUsage().heapUsed + process.memoryUsage().arrayBuffers;
  const before = used();
  for (let i = 0; i < count; i++) {
    piece[0] = i % 251;
    late.side.take(piece);
  }
  expect(account.held).toBe(count);
  expect(used() - before).toBeLessThan(16 * MIB);
  first.side.close();
  expect(late.link.frame!.place).toBe('room');
  const rest = new Uint8Array(total - count);
  for (let i = 0; i < rest.byteLength; i++) rest[i] = (count + i) % 251;
  let frame: Uint8Array | undefined;
  for (let at = 0; at < rest.byteLength; at += 60_000) {
    frame = late.side.take(rest.subarray(at, at + 60_000));
    late.link.due();
  }
  expect(frame!.findIndex((byte, i) => byte !== i % 251)).toBe(-1);
  late.side.handled();
  late.side.close();
  expect(account.held).toBe(0);
});
