/** p50 and p99 at half of what the slowest contender can do, for requests of one row, of some and of many. */
import type { BenchReport } from '../report.js';
import { quantile } from '../statistics.js';
import { type Contender, latency, turn } from './measure.js';

export const LATENCY_ROWS = [1, 64, 4096];

/** Requests of so many rows. */
export type Size = [rows: number, contenders: Contender[]];

/**
 * All contenders of a size get the same load. It follows from the slowest one: requests that come faster than
 * they are answered pile up, and what is measured then is the length of the pile.
 */
export async function addLatencies(
  report: BenchReport,
  name: string,
  sizes: readonly Size[],
  ms: number,
): Promise<void> {
  for (const [rows, contenders] of sizes) {
    const rates: number[] = [];
    for (const contender of contenders) {
      // The first turn warms up.
      await turn(contender, ms);
      rates.push((await turn(contender, ms)).requestsPerSecond);
    }
    const offered = Math.min(...rates) / 2;
    const values: Record<string, number> = { 'requests/s': offered };
    for (const contender of contenders) {
      const took = await latency(contender, offered, 2 * ms);
      values[`${contender.name} p50`] = quantile(took, 0.5);
      values[`${contender.name} p99`] = quantile(took, 0.99);
    }
    report.add({ name: `${name}, ${rows} rows, half load`, unit: 'ms', values });
  }
}
