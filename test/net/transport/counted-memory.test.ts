// Memory of parts that lives as long as its process is no reason for V8 to collect its whole heap: V8 does
// that after every 64 MB that it counts.
import { expect, it } from 'vitest';
import { loadNative } from '../../../src/engine/native.js';
import { PartMemory } from '../../../src/net/transport/index.js';

const native = loadNative();
const MIB = 1 << 20;
const BYTES = 4 * MIB;
const BUFFERS = 100;

/** MiB that V8 counts while buffers are open at once, and when one in ten was left to its collector. */
function burst(memory: PartMemory) {
  const before = native.countExternalMemory(0);
  const counted = () => Math.round((native.countExternalMemory(0) - before) / MIB) + 0;
  const buffers = Array.from({ length: BUFFERS }, () => memory.open(BYTES));
  const open = counted();
  for (const [i, buffer] of buffers.entries())
    if (i % 10 === 0) memory.abandon(buffer);
    else buffer.close();
  return { open, end: counted(), lent: memory.lentBytes };
}

it('V8 counts none of it but what is given up for good', () => {
  expect(burst(new PartMemory(true))).toEqual({ open: 0, end: 40, lent: 0 });
});

it('memory that may be dropped as a whole is counted', () => {
  // A collection meanwhile may free what the test before has left.
  expect(burst(new PartMemory()).open).toBeGreaterThan(300);
});
