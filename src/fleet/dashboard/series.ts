/**
 * Points of the chart: one for each look, the newest ones. The server keeps them, so a page that is opened
 * later, or connects again, shows the same.
 */
import type { JobSnapshot } from '../../library/client/observe.js';
import { ratesBetween } from '../../library/observe/rates.js';

/** A point of the chart. Absent fields: there was nothing to measure. */
export interface Point {
  /** Milliseconds of the epoch. */
  at: number;
  pulledRows: number;
  pushedRows: number;
  pullP99Ms?: number;
  /** Milliseconds within which 99 % of pushes were durable. */
  pushP99Ms?: number;
}

const KEPT = 900;

export class Series {
  private readonly points: Point[] = [];
  /** Points that were ever added. */
  private added = 0;
  private last: JobSnapshot | undefined;

  /** @param at milliseconds of the epoch */
  look(now: JobSnapshot, at: number): void {
    const earlier = this.last;
    this.last = now;
    if (!earlier) return;
    const { pull, push, commitP99Seconds } = ratesBetween(earlier, now).job;
    this.points.push({
      at,
      pulledRows: Math.round(pull.rowsPerSecond),
      pushedRows: Math.round(push.rowsPerSecond),
      ...(pull.p99Seconds !== undefined && { pullP99Ms: pull.p99Seconds * 1000 }),
      ...(commitP99Seconds !== undefined && { pushP99Ms: commitP99Seconds * 1000 }),
    });
    this.added++;
    if (this.points.length > KEPT) this.points.shift();
  }

  /** Forgets the last snapshot, because the job is out of reach: no rate spans the gap. */
  pause(): void {
    this.last = undefined;
  }

  get count(): number {
    return this.added;
  }

  /** Points that were added after the first `count`, as far as they are kept. */
  since(count: number): readonly Point[] {
    const missing = Math.min(this.added - count, this.points.length);
    return missing > 0 ? this.points.slice(-missing) : [];
  }
}
