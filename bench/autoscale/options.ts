/** What `bench autoscale` can be told. */
import { COMMON_FLAGS, completed, type Flags, type Given, number, whole } from '../common/flags.js';

export interface AutoscaleOptions {
  smoke: boolean;
  seed: number;
  /** Different days of each kind of job. */
  days: number;
  hours: number;
  /** A job of real processes instead of simulated days. */
  real: boolean;
  /** Of that job. */
  rows: number;
  json: string | undefined;
}

export const AUTOSCALE_FLAGS = {
  ...COMMON_FLAGS,
  seed: { value: 'n', help: 'of the first day', standard: '1' },
  days: { value: 'n', help: 'days of each kind of job', standard: '5', smoke: '1' },
  hours: { value: 'n', help: 'length of a day', standard: '24', smoke: '3' },
  real: { help: 'a job of processes with too few workers, instead of simulated days' },
  rows: { value: 'n', help: 'samples of that job', standard: '80000', smoke: '3000' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseAutoscaleOptions(given: Given<typeof AUTOSCALE_FLAGS>): AutoscaleOptions {
  const flags = completed(AUTOSCALE_FLAGS, given);
  return {
    smoke: flags.smoke ?? false,
    seed: whole(flags, 'seed', 0),
    days: whole(flags, 'days', 1),
    hours: number(flags, 'hours'),
    real: flags.real ?? false,
    rows: whole(flags, 'rows', 1),
    json: flags.json,
  };
}
