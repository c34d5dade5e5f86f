/** What `bench vanish` can be told. */
import {
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  LOG_FLAG,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';

export interface VanishOptions {
  smoke: boolean;
  ps: number;
  code: string;
  rows: number;
  /** Machines that vanish, one after the other, and times that two do at once. */
  times: number;
  pairs: number;
  stoppedMs: number;
  /** Busy processes on this machine. */
  busy: number;
  json: string | undefined;
  /** Append every record of every role here. */
  log: string | undefined;
  tell(text: string): void;
}

export const VANISH_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  ...LOG_FLAG,
  ps: { value: 'n', help: 'PS, each on a machine of its own', standard: '6' },
  code: { value: 'k+r', help: 'code of the job', standard: '3+2' },
  rows: { value: 'n', help: 'rows of the table', standard: '20000', smoke: '2000' },
  times: { value: 'n', help: 'machines that vanish, one after the other', standard: '20', smoke: '1' },
  pairs: { value: 'n', help: 'times that two vanish at once', standard: '3', smoke: '1' },
  busy: { value: 'n', help: 'processes that take all the time they get', standard: '16', smoke: '2' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseVanishOptions(given: Given<typeof VANISH_FLAGS>): VanishOptions {
  const flags = completed(VANISH_FLAGS, given);
  const { smoke = false, code, json, log } = flags;
  return {
    ...{ smoke, code, json, log },
    ps: whole(flags, 'ps', 1),
    rows: whole(flags, 'rows', 1),
    times: whole(flags, 'times', 1),
    pairs: whole(flags, 'pairs', 0),
    busy: whole(flags, 'busy', 0),
    stoppedMs: smoke ? 500 : 3000,
    tell: teller(flags),
  };
}
