/** p50 and p99 at half of the rate that the library reaches, for requests of one row, of some and of many. */
import type { BenchReport } from '../report.js';
import { type Contender, latency, quantile, turn } from './measure.js';

export const LATENCY_ROWS = [1, 64, 4096];

/** Requests of so many rows: the library first, whose rate sets the load of all. */
export type Size = [rows: number, contenders: Contender[]];

export async function addLatencies(
  report: BenchReport,
  name: string,
  sizes: readonly Size[],
  ms: number,
): Promise<void> {
  for (const [rows, contenders] of sizes) {
    // The first turn warms up.
    await turn(contenders[0]!, ms);
    const { requestsPerSecond } = await turn(contenders[0]!, ms);
    const values: Record<string, number> = { 'requests/s': requestsPerSecond / 2 };
    for (const contender of contenders) {
      const took = await latency(contender, requestsPerSecond / 2, 2 * ms);
      values[`${contender.name} p50`] = quantile(took, 0.5);
      values[`${contender.name} p99`] = quantile(took, 0.99);
    }
    report.add({ name: `${name}, ${rows} rows, half load`, unit: 'ms', values });
  }
}
