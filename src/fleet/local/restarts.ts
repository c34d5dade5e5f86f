/** When a supervisor starts a process again. */
import { type ErrorCode, KintsugiError } from '../../common/errors.js';
import { RESTART_EXIT } from '../../roles/ps/departure.js';
import type { Exit } from './child.js';

/**
 * The end of a PS, by what it means to its supervisor:
 *
 * - `left`: it was drained, by its own SIGTERM or because the job told it to leave. It is not started
 *   again.
 * - `restart`: it was drained in order to be started again. It is, at once.
 * - `refused`: it never served, and said why with a code. It would say it again.
 * - `away`: it served once, and no scheduler answers now. It is started again as often as it takes, because
 *   the others still serve.
 * - `crashed`: anything else. It is started again, as an empty node, after a pause that doubles with each
 *   crash in a row.
 */
export type ProcessEnding = 'left' | 'restart' | 'refused' | 'away' | 'crashed';

/** `served`: the PS did, in this life or an earlier one. `said`: the code of the error that it ended with. */
export function endingOf({ code }: Exit, served: boolean, said?: ErrorCode): ProcessEnding {
  if (code === 0) return 'left';
  if (code === RESTART_EXIT) return 'restart';
  if (code === 2 && served && said === 'UNREACHABLE') return 'away';
  // Exit code 2 is an error with a code.
  return code === 2 && !served ? 'refused' : 'crashed';
}

/** Pause before a process looks for its scheduler again, which it does for `--connect-timeout`. */
const AWAY_PAUSE_MS = 250;

/** A process that has lived for so long has begun well: what crashed before it counts no more. */
export const STEADY_MS = 60_000;
/** After so many crashes in a row somebody should look. */
export const FAILING_CRASHES = 5;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 60_000;

/** The error of a process that is not started again any more. */
export const tooOften = ({ code, message }: KintsugiError, inARow: number): KintsugiError =>
  new KintsugiError(code, `${message}; it has crashed ${inARow} times in a row`);

/** A supervisor starts a process that has ended again after a pause, or (`left`, `refused`) not at all. */
export interface Verdict {
  ending: ProcessEnding;
  pauseMs: number;
}

/** The lives of one process: it may be started again and again. */
export class ProcessLives {
  readonly crashes = new Crashes();
  /** True: it was ready once, in this life or an earlier one. */
  served = false;
  private startedAt = 0;

  constructor(private readonly role: string) {}

  begin(nowMs: number): void {
    this.startedAt = nowMs;
  }

  end(exit: Exit, said: ErrorCode, nowMs: number): Verdict {
    const ending = this.isFinal(exit, said) ? 'refused' : endingOf(exit, this.served, said);
    const againMs = ending === 'away' ? AWAY_PAUSE_MS : 0;
    return { ending, pauseMs: ending === 'crashed' ? this.crashes.add(nowMs - this.startedAt) : againMs };
  }

  /** A worker ends with a code because of its data, its model or the job, and would do so again. */
  private isFinal({ code }: Exit, said: ErrorCode): boolean {
    return this.role === 'worker' && code === 2 && said !== 'UNREACHABLE' && said !== 'SESSION_EXPIRED';
  }
}

/** The crashes of one process. */
export class Crashes {
  /** Crashes since a process has lived for `STEADY_MS`. */
  inARow = 0;

  /** Notes the crash of a process that lived for so long. Returns the pause before the next start. */
  add(livedMs: number): number {
    this.inARow = livedMs >= STEADY_MS ? 1 : this.inARow + 1;
    return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.inARow - 1));
  }
}
