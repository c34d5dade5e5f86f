/** Options of `bench scaling`. */
import { bad, LOG_FLAG, type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';
import { TRAINING_FLAGS } from '../common/training/flags.js';

export const SCALING_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    ...LOG_FLAG,
    ...TRAINING_FLAGS,
    rows: { value: 'n', help: 'rows of the table in millions', standard: '0.5', smoke: '0.01' },
    ps: { value: 'n', help: 'PS at first and at the end, at least 5', standard: '5' },
    to: { value: 'n', help: 'PS in between', standard: '7' },
    calm: {
      value: 'seconds',
      help: 'steady training before and after each scaling',
      standard: '20',
      smoke: '0.5',
    },
    moveRate: { value: 'size', help: 'as of "kintsugi ps" (default: what leaves room for requests)' },
    html: { value: 'file', help: 'write a picture' },
  },
  (flags) => {
    const { moveRate, html } = flags.texts;
    const ps = flags.number('ps');
    const to = flags.number('to');
    if (ps < 5 || to <= ps) throw bad(`--ps must be at least 5 and --to more than --ps, not ${ps} and ${to}`);
    return {
      rows: flags.millions('rows'),
      /** PS at first and at the end; `to` in between. */
      ps,
      to,
      dim: flags.number('dim'),
      /** Keys of one training step. */
      batch: flags.number('batch'),
      /** Arithmetic of a step, in units of about a millisecond. */
      compute: flags.numberOrZero('compute'),
      /** Seconds of steady training before and after each scaling. */
      calmSeconds: flags.number('calm'),
      ...{ moveRate, html },
    };
  },
);
export type ScalingOptions = OptionsOf<typeof SCALING_OPTIONS>;
