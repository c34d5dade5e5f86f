/** Options of `bench life`. */
import { type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';
import { modeOf } from '../common/training/modes.js';

export const LIFE_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    ps: { value: 'n', help: 'PS', standard: '3' },
    code: { value: 'k+r', help: 'code of the job', standard: '2+1' },
    rounds: { value: 'n', help: 'rounds in which the tables take turns', standard: '8', smoke: '1' },
    seconds: {
      value: 's',
      help: 'of one measurement, of which a round has 17',
      standard: '1',
      smoke: '0.3',
    },
    rows: { value: 'n', help: 'rows of each table', standard: '200000', smoke: '5000' },
    dim: { value: 'n', help: 'values of a row', standard: '16' },
    batch: { value: 'n', help: 'keys of a request', standard: '4096', smoke: '512' },
    ttl: { value: 'n', help: 'of the rows that are watched, in steps', standard: '2000', smoke: '60' },
    ttlSeconds: { value: 's', help: 'of other rows that are watched', standard: '60', smoke: '5' },
    memory: {
      value: 'size',
      help: '--memory of a PS that gets endless keys',
      standard: '64MiB',
      smoke: '4MiB',
    },
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
    ttl: flags.whole('ttl', 20),
    ttlSeconds: flags.whole('ttlSeconds', 2),
    memory: flags.texts.memory,
  }),
);
export type LifeOptions = OptionsOf<typeof LIFE_OPTIONS>;
