/** Options of `bench read`. */
import { type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';

export const READ_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    rows: { value: 'n', help: 'rows of each file', standard: '200000', smoke: '2000' },
    rounds: { value: 'n', help: 'interleaved rounds', standard: '9', smoke: '1' },
    python: { value: 'program', help: 'Python that has the package duckdb', standard: 'python3' },
  },
  (flags) => ({
    rows: flags.whole('rows', 1),
    rounds: flags.whole('rounds', 1),
    python: flags.texts.python,
  }),
);
export type ReadOptions = OptionsOf<typeof READ_OPTIONS>;
