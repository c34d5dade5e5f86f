/** What `bench replica` can be told. */
import {
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  number,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';
import { type Mode, modeOf } from '../common/training/modes.js';

export interface ReplicaBenchOptions {
  smoke: boolean;
  ps: number;
  mode: Mode;
  rounds: number;
  /** Of one measurement. */
  seconds: number;
  /** Rows of the table, floats of a row, and keys of a push. */
  rows: number;
  dim: number;
  batch: number;
  json: string | undefined;
  tell(text: string): void;
}

export const REPLICA_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  ps: { value: 'n', help: 'PS', standard: '6', smoke: '3' },
  code: { value: 'k+r', help: 'code of the job', standard: '4+1', smoke: '2+1' },
  rounds: { value: 'n', help: 'rounds in which the sides take turns', standard: '5', smoke: '1' },
  seconds: { value: 's', help: 'of one measurement, of which a round has four', standard: '4', smoke: '0.5' },
  rows: { value: 'n', help: 'rows of the table', standard: '200000', smoke: '2000' },
  dim: { value: 'n', help: 'values of a row', standard: '64', smoke: '8' },
  batch: { value: 'n', help: 'keys of a push', standard: '4096', smoke: '256' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseReplicaOptions(given: Given<typeof REPLICA_FLAGS>): ReplicaBenchOptions {
  const flags = completed(REPLICA_FLAGS, given);
  return {
    smoke: flags.smoke ?? false,
    ps: whole(flags, 'ps', 1),
    mode: modeOf(flags.code, [])[0]!,
    rounds: whole(flags, 'rounds', 1),
    seconds: number(flags, 'seconds'),
    rows: whole(flags, 'rows', 1),
    dim: whole(flags, 'dim', 1),
    batch: whole(flags, 'batch', 1),
    json: flags.json,
    tell: teller(flags),
  };
}
