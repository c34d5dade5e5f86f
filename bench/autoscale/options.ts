/** Options of `bench autoscale`. */
import { type OptionsOf, optionSpec } from '../common/flags.js';

export const AUTOSCALE_OPTIONS = optionSpec(
  {
    seed: { value: 'n', help: 'of the first day', standard: '1' },
    days: { value: 'n', help: 'days of each kind of job', standard: '5', smoke: '1' },
    hours: { value: 'n', help: 'length of a day', standard: '24', smoke: '3' },
    real: { help: 'a job of processes with too few workers, instead of simulated days' },
    rows: { value: 'n', help: 'samples of that job', standard: '80000', smoke: '3000' },
  },
  (flags) => ({
    seed: flags.whole('seed', 0),
    /** Different days of each kind of job. */
    days: flags.whole('days', 1),
    hours: flags.number('hours'),
    /** A job of real processes instead of simulated days. */
    real: flags.texts.real ?? false,
    /** Samples of the job of real processes. */
    rows: flags.whole('rows', 1),
  }),
);
export type AutoscaleBenchOptions = OptionsOf<typeof AUTOSCALE_OPTIONS>;
