/** Several runs of one mode as one: medians of their figures, and between what these lie. Pure. */
import { median } from '../common/statistics.js';
import type { RunResult } from './run.js';

export interface RoundsResult extends RunResult {
  /** By name of a field: the least and the most. */
  spread: Readonly<Partial<Record<keyof RunResult, readonly [least: number, most: number]>>>;
}

/** Whatever was lost in any round is lost. Windows are those of the round with the middle mean. */
export function ofRounds(runs: readonly RunResult[]): RoundsResult {
  const byMean = [...runs].sort((a, b) => (a.mean ?? 0) - (b.mean ?? 0));
  const middle = byMean[Math.floor(byMean.length / 2)]!;
  const result: Record<string, unknown> = { ...middle };
  const spread: Record<string, readonly [number, number]> = {};
  for (const name of Object.keys(middle) as (keyof RunResult)[]) {
    const values = runs.map((run) => run[name]).filter((value): value is number => typeof value === 'number');
    if (values.length === 0 || name === 'firstWindowMs') continue;
    // A figure that some round lacks meets no goal.
    result[name] = values.length < runs.length ? Number.NaN : median(values);
    spread[name] = [Math.min(...values), Math.max(...values)];
  }
  const sum = (of: (run: RunResult) => number) => runs.reduce((total, run) => total + of(run), 0);
  return {
    ...(result as unknown as RunResult),
    rowsLost: sum((run) => run.rowsLost),
    pushes: {
      acked: sum((run) => run.pushes.acked),
      lost: sum((run) => run.pushes.lost),
      duplicated: sum((run) => run.pushes.duplicated),
    },
    mismatchedBlocks: middle.mismatchedBlocks === null ? null : sum((run) => run.mismatchedBlocks ?? 0),
    spread,
  };
}
