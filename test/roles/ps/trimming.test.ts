/** When a PS gives freed memory back to the system. */
import { describe, expect, it } from 'vitest';
import { Trimming } from '../../../src/roles/ps/trimming.js';

const MIB = 1 << 20;

/** A process with memory that it holds, memory that it keeps, and memory that cannot be given back. */
class Fake {
  held = 100 * MIB;
  freed = 0;
  stuck = 0;
  trims = 0;
  now = 0;
  private readonly trimming: Trimming;

  constructor(memory: number) {
    this.trimming = new Trimming(memory, {
      rss: () => this.held + this.freed + this.stuck,
      held: () => this.held,
      trim: () => {
        this.trims++;
        this.freed = 0;
      },
    });
  }

  pass(ms = 1000): number {
    const before = this.trims;
    for (const end = this.now + ms; this.now < end; this.now += 20) this.trimming.tick(this.now);
    return this.trims - before;
  }
}

describe('freed memory', () => {
  it('is kept up to a twentieth of --memory', () => {
    const process = new Fake(500 * MIB);
    process.freed = 24 * MIB;
    expect(process.pass()).toBe(0);
    process.freed = 26 * MIB;
    expect(process.pass()).toBe(1);
    expect(process.freed).toBe(0);
  });

  it('is asked for again only when there is more of it than what could not be had', () => {
    const process = new Fake(500 * MIB);
    process.stuck = 80 * MIB;
    expect(process.pass()).toBe(1);
    process.freed = 20 * MIB;
    expect(process.pass()).toBe(0);
    process.freed = 30 * MIB;
    expect(process.pass()).toBe(1);
    process.stuck = 0;
    expect(process.pass()).toBe(0);
    process.freed = 30 * MIB;
    expect(process.pass()).toBe(1);
  });

  it('that comes all the time is given back five times a second at most', () => {
    const process = new Fake(500 * MIB);
    let trims = 0;
    for (let n = 0; n < 100; n++) {
      process.freed = 300 * MIB;
      trims += process.pass(20);
    }
    expect(trims).toBe(10);
  });

  it('is kept without --memory', () => {
    const process = new Fake(0);
    process.freed = 8000 * MIB;
    expect(process.pass()).toBe(0);
  });
});
