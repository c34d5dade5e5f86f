/** The end of a run whose processes were all killed, because it was told to (`--kill all@P%`). */
import { KintsugiError } from '../../common/errors.js';
import type { CheckpointsReport } from './checkpoints.js';
import { type GoodputReport, goodputLine } from './goodput.js';
import { bytesText, countText } from './text.js';

/** Report of such a run, in place of that of a run that came to its end. */
export interface KilledReport {
  killed: {
    /** Percent of all samples at which it was to be killed. */
    percent: number;
    /** Samples that workers had reported when they were killed. */
    samples: number;
    /** Samples of all epochs. */
    expected: number;
    /** Seconds since training began. */
    atSeconds: number;
  };
  goodput: GoodputReport;
  /** Null: the run made none, and nothing of it is left. */
  checkpoints: CheckpointsReport | null;
}

export class JobKilled extends KintsugiError {
  constructor(readonly report: KilledReport) {
    super('ABORTED', `every process was killed at ${report.killed.percent} % of the samples`);
  }
}

export function renderKilled({ killed, goodput, checkpoints }: KilledReport): string {
  const { percent, samples, expected, atSeconds } = killed;
  const counts = `${countText(samples)} of ${countText(expected)} samples in ${atSeconds.toFixed(1)} s`;
  const lines = [`killed every process at ${percent} %, after ${counts}`];
  lines.push(goodputLine(goodput), ...checkpointLines(checkpoints));
  return `${lines.join('\n')}\n`;
}

/** Checkpoints as a line of a summary. */
export function checkpointLines(checkpoints: CheckpointsReport | null): string[] {
  if (!checkpoints) return [];
  const { made, failed, newest, place } = checkpoints;
  const bytes = made.reduce((sum, each) => sum + each.bytes, 0);
  const without = failed.length > 0 ? `, ${failed.length} failed` : '';
  const last = newest === null ? `none in ${place}` : `the newest in ${place} is ${newest}`;
  return [`checkpoints ${made.length} made (${bytesText(bytes)})${without}; ${last}`];
}
