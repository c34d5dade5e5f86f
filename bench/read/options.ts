/** What `bench read` can be told. */
import {
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';

export interface ReadOptions {
  smoke: boolean;
  json: string | undefined;
  rows: number;
  rounds: number;
  python: string;
  tell(text: string): void;
}

export const READ_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  rows: { value: 'n', help: 'rows of each file', standard: '200000', smoke: '2000' },
  rounds: { value: 'n', help: 'interleaved rounds', standard: '9', smoke: '1' },
  python: { value: 'program', help: 'Python that has the package duckdb', standard: 'python3' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function readOptions(given: Given<typeof READ_FLAGS>): ReadOptions {
  const flags = completed(READ_FLAGS, given);
  return {
    smoke: flags.smoke ?? false,
    json: flags.json,
    rows: whole(flags, 'rows', 1),
    rounds: whole(flags, 'rounds', 1),
    python: flags.python,
    tell: teller(flags),
  };
}
