/** Options of `bench scan`. */
import { type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';

export const SCAN_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    rows: { value: 'n', help: 'rows of the table in millions', standard: '20', smoke: '0.02' },
    dim: { value: 'n', help: 'values of a row', standard: '8' },
    groups: { value: 'n', help: 'groups of two data shards', standard: '4' },
    dir: { value: 'directory', help: 'where the save goes while it runs (default: temporary files)' },
  },
  (flags) => ({
    rows: flags.millions('rows'),
    dim: flags.whole('dim', 1),
    groups: flags.whole('groups', 1),
    /** Directory of the save, for the time of the run; undefined: among temporary files. */
    directory: flags.texts.dir,
  }),
);
export type ScanBenchOptions = OptionsOf<typeof SCAN_OPTIONS>;
