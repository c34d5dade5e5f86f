/** Options of `bench replica`. */
import { type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';
import { modeOf } from '../common/training/modes.js';

export const REPLICA_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    ps: { value: 'n', help: 'PS', standard: '6', smoke: '3' },
    code: { value: 'k+r', help: 'code of the job', standard: '4+1', smoke: '2+1' },
    rounds: { value: 'n', help: 'rounds in which the sides take turns', standard: '5', smoke: '1' },
    seconds: {
      value: 's',
      help: 'of one measurement, of which a round has four',
      standard: '4',
      smoke: '0.5',
    },
    rows: { value: 'n', help: 'rows of the table', standard: '200000', smoke: '2000' },
    dim: { value: 'n', help: 'values of a row', standard: '64', smoke: '8' },
    batch: { value: 'n', help: 'keys of a push', standard: '4096', smoke: '256' },
  },
  (flags) => ({
    ps: flags.whole('ps', 1),
    mode: modeOf(flags.texts.code, [])[0]!,
    rounds: flags.whole('rounds', 1),
    /** Length of one measurement. */
    seconds: flags.number('seconds'),
    rows: flags.whole('rows', 1),
    dim: flags.whole('dim', 1),
    batch: flags.whole('batch', 1),
  }),
);
export type ReplicaBenchOptions = OptionsOf<typeof REPLICA_OPTIONS>;
