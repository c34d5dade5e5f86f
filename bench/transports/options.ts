/** What `bench transports` can be told. */
import {
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';

export interface TransportsOptions {
  smoke: boolean;
  json: string | undefined;
  /** Node for the side with `ws`; undefined: the one that runs this. */
  node: string | undefined;
  rows: number;
  rounds: number;
  turnMs: number;
  tell(text: string): void;
}

export const TRANSPORTS_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  node: { value: 'program', help: 'Node that runs the side with `ws` (default: the one that runs this)' },
  rows: { value: 'n', help: 'rows of the table', standard: '200000', smoke: '8192' },
  rounds: { value: 'n', help: 'rounds; both sides have a turn in each', standard: '15', smoke: '1' },
  turnMs: { value: 'n', help: 'milliseconds that a turn lasts', standard: '400', smoke: '20' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function transportsOptions(given: Given<typeof TRANSPORTS_FLAGS>): TransportsOptions {
  const flags = completed(TRANSPORTS_FLAGS, given);
  return {
    smoke: flags.smoke ?? false,
    json: flags.json,
    node: flags.node,
    rows: whole(flags, 'rows', 4096),
    rounds: whole(flags, 'rounds', 1),
    turnMs: whole(flags, 'turnMs', 1),
    tell: teller(flags),
  };
}
