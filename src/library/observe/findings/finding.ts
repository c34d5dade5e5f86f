/** A finding, and the snapshots in which findings are looked for. */
import type { JobSnapshot } from '../../client/observe.js';
import { type JobRates, ratesBetween } from '../rates.js';

/** Something about a job that costs time or safety, or will. */
export interface Finding {
  /** Name of the problem, for programs. */
  code: string;
  /** `error`: rows are lost, or soon will be, or training stops. `warning`: it is slower or less safe. */
  severity: 'error' | 'warning';
  /** The node, worker or table that has the problem. */
  subject: string;
  /** The numbers that show the problem. */
  evidence: string;
  /** The next step for whoever reads this. */
  advice: string;
}

/** Looks at a job, at least two. */
export interface FindingInput {
  history: readonly JobSnapshot[];
  newest: JobSnapshot;
  /** Rates over the whole time. */
  rates: JobRates;
  /** From each look to the next. */
  windows: readonly JobRates[];
}

/** One thing that is looked for: a pure function of what was seen. */
export type FindingRule = (seen: FindingInput) => Finding[];

/** @returns undefined for less than two looks */
export function seenIn(history: readonly JobSnapshot[]): FindingInput | undefined {
  const [first, newest] = [history[0], history.at(-1)];
  if (!first || !newest || first === newest) return undefined;
  const windows = history.slice(1).map((later, i) => ratesBetween(history[i]!, later));
  return { history, newest, rates: ratesBetween(first, newest), windows };
}

export const times = (value: number): string => `${value.toFixed(1)} times`;
export const percent = (ratio: number): string => `${Math.round(ratio * 100)} %`;
export const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(bytes < 2 ** 24 ? 1 : 0)} MiB`;
