/** Options of `bench recovery`, and the modes that it compares. */
import { LOG_FLAG, type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';
import { TRAINING_FLAGS } from '../common/training/flags.js';
import { modeOf } from '../common/training/modes.js';

export const RECOVERY_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    ...LOG_FLAG,
    ...TRAINING_FLAGS,
    sizes: {
      value: 'list',
      help: 'rows of the table in millions, one run per mode for each',
      standard: '1,2,5',
      smoke: '0.02',
    },
    modes: {
      value: 'list',
      help: 'of codes, none, checkpoint',
      standard: '4+1,4+1/60%,4+1/idle,1+1,checkpoint',
      smoke: '4+1,4+1/60%,checkpoint',
    },
    intervals: { value: 'list', help: 'seconds between two checkpoints', standard: '20', smoke: '1' },
    rounds: { value: 'n', help: 'rounds in which the modes take turns', standard: '3', smoke: '1' },
    ps: { value: 'n', help: 'PS', standard: '6' },
    calm: { value: 'seconds', help: 'training before the kill', standard: '15', smoke: '1' },
    watch: { value: 'seconds', help: 'training after it, at least', standard: '6', smoke: '0.5' },
    recoveryRate: { value: 'size', help: 'as of "kintsugi ps" (default: what leaves room for requests)' },
    backgroundShare: { value: 'part', help: 'as of "kintsugi ps" (default: its own)' },
    html: { value: 'file', help: 'write a picture of every size' },
    svg: { value: 'file', help: 'write a picture of the largest size' },
  },
  (flags) => {
    const { modes, recoveryRate, backgroundShare, html, svg } = flags.texts;
    const intervals = flags.numbers('intervals');
    return {
      /** Rows of the table, one run per mode for each. */
      sizes: flags.numbers('sizes').map((millions) => Math.round(millions * 1e6)),
      modes: modes.split(',').flatMap((name) => modeOf(name, intervals)),
      rounds: flags.number('rounds'),
      ps: flags.number('ps'),
      dim: flags.number('dim'),
      /** Keys of one training step. */
      batch: flags.number('batch'),
      /** Arithmetic of a step, in units of about a millisecond. */
      compute: flags.numberOrZero('compute'),
      /** Seconds of training before the kill, and the least after it. */
      calmSeconds: flags.number('calm'),
      watchSeconds: flags.number('watch'),
      /** Undefined: as a PS has it. */
      backgroundShare: backgroundShare === undefined ? undefined : Number(backgroundShare),
      ...{ recoveryRate, html, svg },
    };
  },
);
export type RecoveryOptions = OptionsOf<typeof RECOVERY_OPTIONS>;
