/** Options of `bench vanish`. */
import { LOG_FLAG, type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';

export const VANISH_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    ...LOG_FLAG,
    ps: { value: 'n', help: 'PS, each on a machine of its own', standard: '6' },
    code: { value: 'k+r', help: 'code of the job', standard: '3+2' },
    rows: { value: 'n', help: 'rows of the table', standard: '20000', smoke: '2000' },
    times: { value: 'n', help: 'machines that vanish, one after the other', standard: '20', smoke: '1' },
    pairs: { value: 'n', help: 'times that two vanish at once', standard: '3', smoke: '1' },
    busy: { value: 'n', help: 'processes that take all the time they get', standard: '16', smoke: '2' },
  },
  (flags) => ({
    ps: flags.whole('ps', 1),
    code: flags.texts.code,
    rows: flags.whole('rows', 1),
    /** Machines that vanish, one after the other, and times that two do at once. */
    times: flags.whole('times', 1),
    pairs: flags.whole('pairs', 0),
    /** Busy processes on this machine. */
    busy: flags.whole('busy', 0),
    stoppedMs: flags.texts.smoke ? 500 : 3000,
  }),
);
export type VanishOptions = OptionsOf<typeof VANISH_OPTIONS>;
