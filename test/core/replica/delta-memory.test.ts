import { expect, it } from 'vitest';
import { DeltaMemory } from '../../../src/core/replica/delta-memory.js';

const filled = (bytes: number, value: number) => new Uint8Array(bytes).fill(value);

it('a copy is that of its delta until it is given back, whatever else is copied', () => {
  const memory = new DeltaMemory();
  const held: { copy: Uint8Array; of: Uint8Array }[] = [];
  for (let i = 0; i < 400; i++) {
    const of = filled((i * 7919) % 7_000, i % 251);
    held.push({ copy: memory.copy(of), of });
    // The oldest ones become durable.
    if (i % 3 === 2) for (const { copy } of held.splice(0, 2)) memory.giveBack(copy);
    for (const { copy, of: delta } of held) expect(Buffer.compare(copy, delta)).toBe(0);
  }
  expect(held.length).toBeGreaterThan(100);
});

it('memory that was given back is used again, and not more of it is kept than 8 MiB', () => {
  const memory = new DeltaMemory();
  const copies = Array.from({ length: 20 }, () => memory.copy(filled(1 << 20, 1)));
  const known = new Set(copies.map(({ buffer }) => buffer));
  expect(known.size).toBe(20);
  for (const copy of copies) memory.giveBack(copy);
  const again = Array.from({ length: 20 }, () => memory.copy(filled(1000, 2)));
  expect(again.filter(({ buffer }) => known.has(buffer))).toHaveLength(8);
});
