/** Medians and quantiles. */
import { median as middle } from '../../src/common/statistics.js';

/** NaN of nothing. */
export function median(values: readonly number[]): number {
  return values.length === 0 ? Number.NaN : middle(values);
}

export function quantile(sorted: ArrayLike<number>, q: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}
