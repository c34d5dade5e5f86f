/** What `bench rolling` can be told. */
import {
  bad,
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  number,
  numberOrZero,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';

export interface RollingOptions {
  smoke: boolean;
  ps: number;
  /** Bytes of data and parity on each PS before the first is restarted. */
  bytes: number;
  dim: number;
  batch: number;
  /** Seconds of load before and after. */
  calmSeconds: number;
  /** For each step. */
  timeoutMs: number;
  /** SIGTERM and a start by whoever sent it, instead of `kintsugi restart`. */
  sigterm: boolean;
  json: string | undefined;
  tell(text: string): void;
}

export const ROLLING_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  ps: { value: 'n', help: 'PS, at least 6 (code 4+1)', standard: '6' },
  size: { value: 'MiB', help: 'what a PS holds', standard: '100', smoke: '2' },
  dim: { value: 'n', help: 'values of a row', standard: '32' },
  batch: { value: 'n', help: 'keys of a push and of a pull', standard: '1000', smoke: '100' },
  calm: { value: 'seconds', help: 'load before and after', standard: '10', smoke: '0.5' },
  timeout: { value: 'seconds', help: 'for each step of the restart', standard: '30' },
  sigterm: { help: 'SIGTERM and a start, instead of "kintsugi restart --rolling"' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseRollingOptions(given: Given<typeof ROLLING_FLAGS>): RollingOptions {
  const flags = completed(ROLLING_FLAGS, given);
  const ps = whole(flags, 'ps', 1);
  if (ps < 6) throw bad(`--ps must be at least 6, not ${ps}: one of them is missing while it is restarted`);
  return {
    smoke: flags.smoke ?? false,
    ps,
    bytes: number(flags, 'size') * 2 ** 20,
    dim: whole(flags, 'dim', 1),
    batch: whole(flags, 'batch', 1),
    calmSeconds: numberOrZero(flags, 'calm'),
    timeoutMs: number(flags, 'timeout') * 1000,
    sigterm: flags.sigterm ?? false,
    json: flags.json,
    tell: teller(flags),
  };
}
