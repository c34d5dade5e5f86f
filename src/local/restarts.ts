/** When a supervisor starts a PS again. */
import type { ErrorCode } from '../errors.js';
import { RESTART_EXIT } from '../runtime/departure.js';
import type { Exit } from './child.js';

/**
 * What the end of a PS means to its supervisor:
 *
 * - `left`: it was drained, by its own SIGTERM or because the job told it to leave. It is not started again.
 * - `restart`: it was drained in order to be started again. It is, at once.
 * - `refused`: it never served, and said why with a code. It would say it again.
 * - `away`: it served once, and no scheduler answers now. It is started again as often as it takes, because
 *   the others still serve.
 * - `crashed`: anything else. It is started again, as an empty node, after a pause that doubles with each
 *   crash in a row.
 */
export type Ending = 'left' | 'restart' | 'refused' | 'away' | 'crashed';

/** `served`: it did, in this life or an earlier one. `said`: the code of the error that it ended with. */
export function endingOf({ code }: Exit, served: boolean, said?: ErrorCode): Ending {
  if (code === 0) return 'left';
  if (code === RESTART_EXIT) return 'restart';
  if (code === 2 && served && said === 'UNREACHABLE') return 'away';
  // Exit code 2 is an error with a code.
  return code === 2 && !served ? 'refused' : 'crashed';
}

/** Before a process looks for its scheduler again, which it does for `--connect-timeout`. */
export const AWAY_PAUSE_MS = 250;

/** A process that has lived for so long has begun well: what crashed before it counts no more. */
export const STEADY_MS = 60_000;
/** From so many crashes in a row on somebody should look. */
export const FAILING_CRASHES = 5;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 60_000;

/** The crashes of one process. It is started again as often as it takes: the others still serve. */
export class Crashes {
  /** Those that none has lived `STEADY_MS` between. */
  inARow = 0;

  /** Notes one, of a process that lived for so long. Returns the pause before the next start. */
  add(livedMs: number): number {
    this.inARow = livedMs >= STEADY_MS ? 1 : this.inARow + 1;
    return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.inARow - 1));
  }
}
