/** Memory that runs out. This rule comes first: a decision that is late for memory cannot be made good. */

import { theilSen } from '../../../common/statistics.js';
import type { Decision, History, Observation } from './observation.js';
import type { AutoscalePolicy } from './policy.js';
import { longestPending, recent, throughput } from './trend.js';

const bytesOf = ({ ps }: Observation): number => ps.reduce((sum, { bytes }) => sum + bytes, 0);

/** Memory of all PS now, and how long it lasts. */
export interface Outlook {
  bytes: number;
  limit: number;
  /**
   * Share of its limit that the fullest PS uses; `unevenness`: that divided by the mean share, at least 1.
   */
  fullest: number;
  unevenness: number;
  /** Bytes per second of all PS, as they grow now. */
  growth: number;
  /** Seconds until the fullest is full. */
  left: number;
  /** Seconds until one more PS serves and has its share. */
  move: number;
}

/** Undefined where a PS has no limit. */
export function outlook({ seen }: History, policy: AutoscalePolicy): Outlook | undefined {
  const now = seen.at(-1);
  if (!now || now.ps.length === 0 || now.ps.some(({ limit }) => limit === 0)) return undefined;
  const bytes = bytesOf(now);
  const limit = now.ps.reduce((sum, ps) => sum + ps.limit, 0);
  const shares = now.ps.map((ps) => ps.bytes / ps.limit);
  const fullest = Math.max(...shares);
  const mean = bytes / limit;
  // By samples, not by time: a job that stood still has the same slope when it goes on.
  const points = recent(seen, policy.slopeWindow).map((one) => [one.samples, bytesOf(one)] as const);
  const pace = throughput(recent(seen, policy.window));
  const growth = Number.isFinite(pace) ? Math.max(0, theilSen(points) * pace) : 0;
  const unevenness = mean > 0 ? Math.max(1, fullest / mean) : 1;
  const free = Math.max(0, 1 - fullest) * (limit / now.ps.length);
  const growthOfFullest = (growth / now.ps.length) * unevenness;
  return {
    bytes,
    limit,
    fullest,
    unevenness,
    growth,
    left: growthOfFullest > 0 ? free / growthOfFullest : Number.POSITIVE_INFINITY,
    move: Math.max(policy.startup, longestPending(seen)) + bytes / (now.ps.length + 1) / policy.moveBytes,
  };
}

/** Number of PS that are `full` full, from 0 to 1, with the bytes that there will be in `seconds`. */
export function psFor(view: Outlook, count: number, seconds: number, full: number): number {
  const later = (view.bytes + view.growth * seconds) * view.unevenness;
  return Math.ceil(later / ((view.limit / count) * full));
}

/**
 * Adds PS ahead of time: when the fullest is full in less than `moves` times what a move takes, or is fuller
 * than `brim` already.
 */
export function memory(history: History, policy: AutoscalePolicy): Decision | undefined {
  const now = history.seen.at(-1)!;
  const view = outlook(history, policy);
  if (!view || now.pendingPs > 0) return undefined;
  const { fullest, left, move, growth } = view;
  const soon = left < policy.moves * move;
  const count = now.ps.length;
  if (!soon && fullest < policy.brim) return undefined;
  if (now.changing && fullest < 0.95 && left > move) return undefined;
  const wanted = psFor(view, count, 2 * policy.moves * move, policy.full);
  const to = Math.min(policy.ps.most, Math.max(count + 1, wanted));
  if (to <= count) return undefined;
  return {
    kind: 'ps',
    from: count,
    to,
    reason: soon
      ? 'the memory of the fullest PS lasts for less than three moves'
      : 'the fullest PS is nearly full',
    numbers: { fullest, secondsLeft: left, moveSeconds: move, bytesPerSecond: growth },
  };
}
