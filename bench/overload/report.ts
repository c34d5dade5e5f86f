/** Goals of a round, and the table of all rounds. */
import { bytesText } from '../../src/fleet/local/text.js';
import { boundOf, type MemoryLimits } from '../common/attacks/bound.js';
import type { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import { coresOf, type RoundResult } from './round.js';

const MEBIBYTE = 2 ** 20;
const P99_TIMES = 2;

export interface OverloadBounds extends MemoryLimits {
  /** False: latencies of this run mean nothing. */
  times: boolean;
}

/** Highest peak of the processes whose names begin so; 0 without one. */
export function peakOf({ peaks }: RoundResult, prefix: string): number {
  return Math.max(
    0,
    ...Object.entries(peaks).flatMap(([name, bytes]) => (name.startsWith(prefix) ? bytes : [])),
  );
}

/**
 * p99 under attack over p99 while another job is attacked, of each pair. Work of others on the machine may
 * make the quiet phase the slower one: then that is the baseline.
 */
function p99Ratios({ quiet, pairs }: RoundResult): number[] {
  return pairs.map(({ attack, beside }) => attack.p99Ms / Math.max(quiet?.p99Ms ?? 0, beside.p99Ms));
}

/** The median of the pairs: the slowest hundredth of a few seconds is a few requests. */
export function p99Ratio(result: RoundResult): number | undefined {
  const ratios = p99Ratios(result);
  return ratios.length > 0 ? median(ratios) : undefined;
}

/** PS that the job declared lost, beside those that were killed. */
const unfounded = ({ lost, killed, tooLarge }: RoundResult): number => Math.max(0, lost - killed - tooLarge);

/** Rows and pushes that are wrong; Infinity where they could not be read. */
function wrongOf({ rows, wrongPulls }: RoundResult): number {
  if (!rows) return Number.POSITIVE_INFINITY;
  return rows.wrong + rows.lost + rows.duplicated + wrongPulls.length;
}

/** Adds results and goals of a round. */
export function judge(report: BenchReport, result: RoundResult, bounds: OverloadBounds): void {
  const { name, quiet, died, refused, ended } = result;
  const bound = boundOf(bounds);
  const values: Record<string, number> = {
    'peak of a PS': peakOf(result, 'ps-') / MEBIBYTE,
    bound: bound / MEBIBYTE,
  };
  const gateway = peakOf(result, 'gateway-');
  if (gateway > 0) values['peak of a gateway'] = gateway / MEBIBYTE;
  report.add({ name: `${name}: memory`, unit: 'MiB', values });
  const times = { quiet: quiet?.p99Ms ?? Number.NaN, ...p99Of(result) };
  report.add({ name: `${name}: p99`, unit: `ms (${coresOf(result).toFixed(1)} cores)`, values: times });
  report.atMost(`${name}: peak of a PS, of its bound`, peakOf(result, 'ps-') / bound, 1);
  if (gateway > 0) report.atMost(`${name}: peak of a gateway, of the bound of a PS`, gateway / bound, 1);
  const ratio = p99Ratio(result) ?? Number.POSITIVE_INFINITY;
  if (bounds.times) report.atMost(`${name}: p99, of that beside another job under attack`, ratio, P99_TIMES);
  report.exactly(`${name}: PS declared lost that nobody killed`, unfounded(result), 0);
  report.exactly(`${name}: processes that ended by themselves`, died.length, 0);
  report.exactly(`${name}: requests of the well-behaved client that failed`, refused, 0);
  report.exactly(`${name}: rows and pushes that are wrong`, wrongOf(result), 0);
  report.exactly(`${name}: attacks ended before their time`, ended === undefined ? 0 : 1, 0);
  report.exactly(`${name}: rounds that did not come to their end`, result.errors.length > refused ? 1 : 0, 0);
}

/** Medians of the pairs, in ms. */
function p99Of({ pairs }: RoundResult): { attack: number; beside: number } {
  const of = (which: 'attack' | 'beside') => median(pairs.map((pair) => pair[which].p99Ms));
  return pairs.length > 0
    ? { attack: of('attack'), beside: of('beside') }
    : { attack: Number.NaN, beside: Number.NaN };
}

function gatewayText(result: RoundResult): string {
  const peak = peakOf(result, 'gateway-');
  return peak === 0 ? '' : ` (of a gateway ${bytesText(peak)})`;
}

/** One line of a round, for people. */
export function roundText(result: RoundResult): string {
  const { lost, killed, tooLarge, rows, ended } = result;
  const { attack, beside } = p99Of(result);
  const ratio = p99Ratio(result)?.toFixed(2) ?? '?';
  const each = p99Ratios(result).map((one) => one.toFixed(1));
  const cores = `${coresOf(result).toFixed(1)} cores`;
  return [
    `${result.name}: peak ${bytesText(peakOf(result, 'ps-'))}${gatewayText(result)}`,
    `p99 ${attack.toFixed(0)} / ${beside.toFixed(0)} ms, in pairs ${ratio} (${each.join(' ')}; ${cores})`,
    `lost ${lost} (killed ${killed}, for their size ${tooLarge})`,
    rows ? `${wrongOf(result)} wrong of ${rows.acknowledged} pushes` : 'rows not read',
    ...(ended === undefined ? [] : [`ended: ${ended}`]),
    ...result.died,
  ].join(', ');
}
