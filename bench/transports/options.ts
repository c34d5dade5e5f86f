/** Options of `bench transports`. */
import { type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';

export const TRANSPORTS_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    node: { value: 'program', help: 'Node that runs the side with `ws` (default: the one that runs this)' },
    rows: { value: 'n', help: 'rows of the table', standard: '200000', smoke: '8192' },
    rounds: { value: 'n', help: 'rounds; both sides have a turn in each', standard: '15', smoke: '1' },
    turnMs: { value: 'n', help: 'milliseconds that a turn lasts', standard: '400', smoke: '20' },
  },
  (flags) => ({
    /** Node for the side with `ws`; undefined: the one that runs this. */
    node: flags.texts.node,
    rows: flags.whole('rows', 4096),
    rounds: flags.whole('rounds', 1),
    turnMs: flags.whole('turnMs', 1),
  }),
);
export type TransportsOptions = OptionsOf<typeof TRANSPORTS_OPTIONS>;
