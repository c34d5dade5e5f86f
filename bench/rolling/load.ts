/**
 * Load on a running job: pushes that add one to random rows, and pulls of the same rows. It counts what was
 * answered and when, and knows what every row must hold in the end.
 */

import { describe } from '../../src/common/errors.js';
import type { Client, Table } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import { randomU32 } from '../common/random.js';

const FILL_ROWS = 20_000;
const PULL_ROWS = 50_000;

export class RollingLoad {
  /** Clock and duration of every step: a push and a pull. */
  readonly steps: { at: number; ms: number }[] = [];
  /** Errors of refused requests. */
  readonly refused: string[] = [];
  private rows = 0;
  private readonly added: number[] = [];
  private running = true;
  private readonly random = randomU32(1);

  constructor(
    private readonly client: Client,
    private readonly table: Table,
    private readonly batch: number,
  ) {}

  /** Adds rows until each PS holds so much on average. Returns how many there are. */
  async fill(bytes: number): Promise<number> {
    const { dim } = this.table;
    const ones = new Float32Array(FILL_ROWS * dim).fill(1);
    for (;;) {
      const keys = BigUint64Array.from({ length: FILL_ROWS }, (_, i) => BigInt(this.rows + i));
      await this.table.push(keys, ones);
      for (let i = 0; i < FILL_ROWS; i++) this.added.push(1);
      this.rows += FILL_ROWS;
      const { nodes } = await this.client.status();
      const held = nodes.reduce((sum, node) => sum + node.bytes, 0) / nodes.length;
      if (held >= bytes) return this.rows;
    }
  }

  async run(): Promise<void> {
    const { dim } = this.table;
    const ones = new Float32Array(this.batch * dim).fill(1);
    while (this.running) {
      const rows = Array.from({ length: this.batch }, () => this.random() % this.rows);
      const keys = BigUint64Array.from(rows, BigInt);
      const begun = monotonicMs();
      try {
        await this.table.push(keys, ones);
        for (const row of rows) this.added[row]!++;
        await this.table.pull(keys);
      } catch (error) {
        this.refused.push(describe(error));
      }
      this.steps.push({ at: monotonicMs(), ms: monotonicMs() - begun });
    }
  }

  stop(): void {
    this.running = false;
  }

  /** Steps per second and the slowest step in milliseconds, in a span of the clock. */
  between(from: number, to: number): { perSecond: number; slowestMs: number } {
    const inside = this.steps.filter(({ at }) => at >= from && at < to);
    const slowestMs = inside.reduce((most, { ms }) => Math.max(most, ms), 0);
    return { perSecond: (inside.length * 1000) / Math.max(1, to - from), slowestMs };
  }

  /** Rows that do not hold what was added to them. */
  async wrongRows(): Promise<number> {
    const { dim } = this.table;
    let wrong = 0;
    for (let from = 0; from < this.rows; from += PULL_ROWS) {
      const count = Math.min(PULL_ROWS, this.rows - from);
      const values = await this.table.pull(
        BigUint64Array.from({ length: count }, (_, i) => BigInt(from + i)),
      );
      for (let i = 0; i < count; i++) {
        const row = values.subarray(i * dim, (i + 1) * dim);
        if (!row.every((value) => value === this.added[from + i])) wrong++;
      }
    }
    return wrong;
  }
}
