/** A queue of any length, against an array. */
import { expect, it } from 'vitest';
import { Fifo } from '../../../src/core/shared/fifo.js';

it('gives what it took, in order, whatever its length', () => {
  for (let seed = 1; seed <= 50; seed++) {
    let state = seed;
    const random = (below: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const [fifo, plain] = [new Fifo<number>(), [] as number[]];
    for (let step = 0; step < 400; step++) {
      const kind = random(200);
      if (kind === 0) expect(fifo.takeAll()).toEqual(plain.splice(0));
      else if (kind < 100 + (seed % 3) * 5) fifo.push(plain[plain.push(step) - 1]!);
      else expect(fifo.shift()).toBe(plain.shift());
      expect([fifo.length, fifo.first]).toEqual([plain.length, plain[0]]);
    }
    expect(fifo.takeAll()).toEqual(plain);
    expect([fifo.length, fifo.first, fifo.shift()]).toEqual([0, undefined, undefined]);
  }
});
