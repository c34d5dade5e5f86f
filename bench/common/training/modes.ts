/** The modes that are compared: codes, replication, checkpoints, or nothing at all. */
import { bad } from '../flags.js';

export interface TrainingMode {
  name: string;
  /** As of `kintsugi scheduler --code`. */
  code: string;
  /** Data shards of a group: all modes have the same number of shards. */
  k: number;
  /** Training has stopped when the failure comes: how fast is recovery when it has the machine? */
  idle?: boolean;
  /**
   * Steps are due at this part of the rate of which training is capable; undefined: each begins when the one
   * before has ended.
   */
  load?: number;
  /** Seconds between two checkpoints; undefined: this mode takes none. */
  intervalSeconds?: number;
  /** Programs that look at the job; undefined: none. */
  watched?: readonly Look[];
}

/**
 * Programs that can look at a job: a page of the dashboard, `kintsugi top`, a follower of events, a reader of
 * metrics.
 */
export const LOOKS = ['page', 'top', 'events', 'metrics', 'tensorboard'] as const;
export type Look = (typeof LOOKS)[number];

/** @throws BAD_ARGUMENT */
export function modeOf(name: string, intervals: readonly number[]): TrainingMode[] {
  const match = /^(\d+)\+(\d+)(?:\/(?:(idle)|([1-9]\d?)%))?$/.exec(name);
  if (match && Number(match[1]) > 0) {
    const code = `${match[1]}+${match[2]}`;
    const load = match[4] === undefined ? {} : { load: Number(match[4]) / 100 };
    return [{ name, code, k: Number(match[1]), idle: match[3] !== undefined, ...load }];
  }
  if (name === 'none') return [{ name, code: 'none', k: 1 }];
  if (name !== 'checkpoint')
    throw bad(
      `--modes must name codes like 4+1, 1+1, 4+1/60% and 4+1/idle, none, or checkpoint, not "${name}"`,
    );
  return intervals.map((seconds) => ({
    name: `checkpoint/${seconds}s`,
    code: 'none',
    k: 1,
    intervalSeconds: seconds,
  }));
}

/** Every mode has as many data shards as 4+1 has with a group per PS. */
export function groupsOf(mode: TrainingMode, ps: number): number {
  return Math.max(1, Math.round((ps * 4) / mode.k));
}
