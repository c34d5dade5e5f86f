/**
 * A job under failures, in steps of a tenth of a second: what is lost under each way to keep what it has
 * learned. Pure. It is as simple as it can be:
 *
 * - Workers compute a share `steady` of their time. What slows requests down takes a share of that.
 * - A lost PS stops all workers until its shards serve again (parity), or until a new job has its rows. What
 *   was trained since the last whole checkpoint began is then trained again; without one, everything.
 * - A lost worker is away until its next process trains. Others take its samples; half a batch is lost.
 * - Failures of more PS than the code has parities, before it is redundant again, end the job as without one.
 * - What fails while the job stands still has no further effect.
 */
import type { Failure } from './failures.js';

/** Seconds, and shares of the throughput. */
export interface Assumptions {
  /** Share of a worker's time that it computes when nothing fails. */
  steady: number;
  /** With parities, of the throughput without. */
  codeShare: number;
  /** Until a loss is known. */
  detection: number;
  /** From then on until every shard serves, and from there until everything is redundant. */
  serving: number;
  redundant: number;
  /** Until it is redundant. */
  recoveringShare: number;
  /** Until the processes of a new job are up, and until it has the rows of a checkpoint. */
  restart: number;
  restore: number;
  /** A checkpoint takes so long. */
  checkpoint: number;
  checkpointShare: number;
  /** Until the next process of a lost worker trains. */
  worker: number;
  /** Compute of a batch. */
  batch: number;
}

/**
 * Figures of a simulated hour, measured by the benchmarks of this repository (bench/README.md). `steady` is
 * 1, so that goodput shows only the cost of failures, and of what is done against them.
 */
export const MEASURED: Readonly<Assumptions> = {
  steady: 1,
  codeShare: 0.99,
  detection: 1,
  serving: 0.3,
  redundant: 28,
  recoveringShare: 0.93,
  restart: 5,
  restore: 13,
  checkpoint: 5.8,
  checkpointShare: 0.95,
  worker: 3,
  batch: 0.1,
};

export interface ModelledJob {
  ps: number;
  workers: number;
  /** Parities; 0: none. */
  parities: number;
  /** Seconds from the beginning of a checkpoint to that of the next; undefined: none are made. */
  interval: number | undefined;
}

export interface Played {
  goodput: number;
  /** Times that a new job was started. */
  restarts: number;
}

const STEP = 0.1;

/** The interval that loses the least (Young); `between`: seconds between losses of a PS. */
export function bestInterval({ checkpoint, checkpointShare }: Assumptions, between: number): number {
  return Math.max(2 * checkpoint, Math.sqrt(2 * checkpoint * (1 - checkpointShare) * between));
}

/** `failures` in the order of their times. */
export function play(
  shape: ModelledJob,
  failures: readonly Failure[],
  seconds: number,
  given: Assumptions,
): Played {
  const { workers, parities, interval } = shape;
  // Useful seconds of compute of all workers, and of these what the newest whole checkpoint has.
  let done = 0;
  let saved = 0;
  let restarts = 0;
  let stopped = 0;
  /** When what was lost is redundant again. */
  let open: number[] = [];
  const away = new Array<number>(workers).fill(0);
  let saving: { from: number; until: number; holds: number } | undefined;
  let nextSave = interval ?? Number.POSITIVE_INFINITY;
  let next = 0;
  for (let step = 0; step * STEP < seconds; step++) {
    const at = step * STEP;
    for (; next < failures.length && failures[next]!.at <= at; next++) {
      const { role, index } = failures[next]!;
      if (at < stopped) continue;
      if (role === 'worker') {
        if (at < away[index]!) continue;
        away[index] = at + given.worker;
        done = Math.max(0, done - given.batch / 2);
        continue;
      }
      open.push(at + given.detection + given.serving + given.redundant);
      if (open.length <= parities) {
        stopped = at + given.detection + given.serving;
        continue;
      }
      restarts++;
      done = saved;
      stopped = at + given.detection + given.restart + (saved > 0 ? given.restore : 0);
      open = [];
      saving = undefined;
      nextSave = stopped + (interval ?? Number.POSITIVE_INFINITY);
    }
    open = open.filter((until) => at < until);
    if (at < stopped) continue;
    if (saving && at >= saving.until) {
      saved = saving.holds;
      nextSave = saving.from + Math.max(interval ?? 0, given.checkpoint);
      saving = undefined;
    }
    if (!saving && at >= nextSave) saving = { from: at, until: at + given.checkpoint, holds: done };
    let share = given.steady;
    if (parities > 0) share *= given.codeShare;
    if (open.length > 0) share *= given.recoveringShare;
    if (saving) share *= given.checkpointShare;
    done += share * STEP * away.filter((until) => at >= until).length;
  }
  return { goodput: done / (workers * seconds), restarts };
}
