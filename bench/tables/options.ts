/** Options of `bench tables`. */
import { type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';

export const TABLES_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    tables: { value: 'n', help: 'tables of the job', standard: '4096', smoke: '50' },
    rows: { value: 'n', help: 'rows of each table', standard: '100', smoke: '20' },
    dim: { value: 'n', help: 'values of a row', standard: '8' },
  },
  (flags) => ({
    tables: flags.whole('tables', 1),
    /** Rows of each table. */
    rows: flags.whole('rows', 1),
    dim: flags.whole('dim', 1),
  }),
);
export type TablesOptions = OptionsOf<typeof TABLES_OPTIONS>;
