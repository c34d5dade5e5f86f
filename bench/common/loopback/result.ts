/** Names and results that `bench pull` and `bench push` have in common. */
import type { BenchReport } from '../report.js';
import type { MeasuredTurn } from './measure.js';
import { REQUEST_ROWS } from './options.js';

export const LIBRARY = 'library';
export const BARE = 'bare transport';
export const REDIS_MISSING = 'Redis: redis-server is not installed (Debian: apt-get install redis-server)';

export function addComparison(
  report: BenchReport,
  name: string,
  medians: ReadonlyMap<string, MeasuredTurn>,
): void {
  const values = (of: (turn: MeasuredTurn) => number): Record<string, number> =>
    Object.fromEntries([...medians].map(([who, turn]) => [who, (of(turn) * REQUEST_ROWS) / 1e6]));
  report.add({ name, unit: 'M rows/s', values: values((turn) => turn.requestsPerSecond) });
  for (const [side, of] of [
    ['server', (turn: MeasuredTurn) => turn.perServerSecond],
    ['client', (turn: MeasuredTurn) => turn.perClientSecond],
  ] as const) {
    report.add({ name: `${name} per ${side} core`, unit: 'M rows per CPU second', values: values(of) });
  }
}
