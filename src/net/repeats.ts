/**
 * A cause that repeats is logged when it begins, then 1, 10 and 60 minutes after that, and once an hour from
 * then on. A dead node would otherwise write a line a second into the log of every process.
 *
 * Lines are written by occurrences and not by timers, so a cause that ends is silent at once.
 */

import { monotonicMs } from './log.js';

const MINUTE_MS = 60_000;
/** Times after the first occurrence at which the next line is due. */
const AFTER_MS: readonly number[] = [MINUTE_MS, 10 * MINUTE_MS, 60 * MINUTE_MS];
/** Causes that are remembered; beyond this the oldest are forgotten, and would begin anew. */
const MAX_CAUSES = 4096;

interface RepeatingCause {
  readonly begunAt: number;
  /** Time of the newest occurrence. */
  lastAt: number;
  /** When the next line may be written. */
  dueAt: number;
  /** Lines that were written after the first one. */
  lines: number;
  /** Occurrences since the last line, without the one that it told of. */
  unsaid: number;
}

export class Repeats<Cause> {
  private readonly causes = new Map<Cause, RepeatingCause>();

  /** `quietMs`: a cause that was silent for so long is over. */
  constructor(
    private readonly clock: () => number,
    private readonly quietMs = Number.POSITIVE_INFINITY,
  ) {}

  /**
   * The cause occurs. `write` is called when a line is due, with the number of occurrences that no line told
   * of; undefined for the first occurrence.
   */
  note(cause: Cause, write: (repeated: number | undefined) => void): void {
    const now = this.clock();
    const known = this.causes.get(cause);
    if (!known || now - known.lastAt >= this.quietMs) {
      this.causes.delete(cause);
      this.causes.set(cause, { begunAt: now, lastAt: now, dueAt: now + AFTER_MS[0]!, lines: 0, unsaid: 0 });
      if (this.causes.size > MAX_CAUSES) this.causes.delete(this.causes.keys().next().value!);
      write(undefined);
      return;
    }
    known.lastAt = now;
    known.unsaid++;
    if (now < known.dueAt) return;
    known.lines++;
    const after = AFTER_MS[known.lines];
    known.dueAt = after === undefined ? now + AFTER_MS.at(-1)! : known.begunAt + after;
    write(known.unsaid);
    known.unsaid = 0;
  }

  /** The cause is over: its next occurrence is a change, which is logged. */
  over(cause: Cause): void {
    this.causes.delete(cause);
  }
}

/** A wait that lasts longer is told. */
const LONG_WAIT_MS = 5000;

/** The value of the promise. While it takes long, lines about it are written as for a cause that repeats. */
export async function saidWhile<T>(
  work: Promise<T>,
  write: (repeated: number | undefined) => void,
): Promise<T> {
  const repeats = new Repeats<'wait'>(monotonicMs);
  const timer = setInterval(() => repeats.note('wait', write), LONG_WAIT_MS);
  return work.finally(() => clearInterval(timer));
}
