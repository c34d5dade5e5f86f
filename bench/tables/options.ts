/** What `bench tables` can be told. */
import {
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';

export interface TablesOptions {
  smoke: boolean;
  tables: number;
  /** Rows of each table. */
  rows: number;
  dim: number;
  json: string | undefined;
  tell(text: string): void;
}

export const TABLES_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  tables: { value: 'n', help: 'tables of the job', standard: '4096', smoke: '50' },
  rows: { value: 'n', help: 'rows of each table', standard: '100', smoke: '20' },
  dim: { value: 'n', help: 'values of a row', standard: '8' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseTablesOptions(given: Given<typeof TABLES_FLAGS>): TablesOptions {
  const flags = completed(TABLES_FLAGS, given);
  return {
    smoke: flags.smoke ?? false,
    tables: whole(flags, 'tables', 1),
    rows: whole(flags, 'rows', 1),
    dim: whole(flags, 'dim', 1),
    json: flags.json,
    tell: teller(flags),
  };
}
