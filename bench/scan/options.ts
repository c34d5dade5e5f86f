/** What `bench scan` can be told. */
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

export interface ScanBenchOptions {
  smoke: boolean;
  rows: number;
  dim: number;
  groups: number;
  /** Where the save goes, for the time of the run; undefined: among temporary files. */
  directory: string | undefined;
  json: string | undefined;
  tell(text: string): void;
}

export const SCAN_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  rows: { value: 'n', help: 'rows of the table in millions', standard: '20', smoke: '0.02' },
  dim: { value: 'n', help: 'values of a row', standard: '8' },
  groups: { value: 'n', help: 'groups of two data shards', standard: '4' },
  dir: { value: 'directory', help: 'where the save goes while it runs (default: temporary files)' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseScanOptions(given: Given<typeof SCAN_FLAGS>): ScanBenchOptions {
  const flags = completed(SCAN_FLAGS, given);
  return {
    smoke: flags.smoke ?? false,
    // Millions on the command line.
    rows: Math.round(number(flags, 'rows') * 1e6),
    dim: whole(flags, 'dim', 1),
    groups: whole(flags, 'groups', 1),
    directory: flags.dir,
    json: flags.json,
    tell: teller(flags),
  };
}
