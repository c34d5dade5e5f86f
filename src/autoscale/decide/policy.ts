/** How the autoscaler behaves: bounds, thresholds and times. Times are seconds, shares are of 1. */

export interface Policy {
  ps: { least: number; most: number };
  workers: { least: number; most: number };
  /** Whoever starts workers has no use for decisions about them. */
  leaveWorkers: boolean;
  /** Decisions that cost something, in any hour: at most so many. Memory that runs out is never refused. */
  budgetPerHour: number;
  /** Nothing else is decided for so long after a decision. */
  settle: number;
  /** Rates are taken over so long. */
  window: number;
  /** The slope of memory is taken over so long. */
  slopeWindow: number;
  /** Observations and decisions that are older are not needed. */
  remember: number;
  /**
   * Bytes per second that moves bring to a node, and the time until a new process serves: at least. Where
   * processes were waited for longer, that counts.
   */
  moveBytes: number;
  startup: number;
  /** PS are added when their memory lasts for less than so many times what a move takes. */
  moves: number;
  /** Or when a node is fuller than this. After it nodes are to be at most `full` full. */
  brim: number;
  full: number;
  /** A PS that is busier is hot. After scaling out they are to be `busy` busy. */
  hot: number;
  busy: number;
  /** Nodes whose mean is below this are not hot as a whole: a rebalance comes first. */
  uneven: number;
  /** PS leave when those that stay are at most so full and so busy, for `idleFor` seconds. */
  idleFull: number;
  idleBusy: number;
  idleFor: number;
  /** Workers are added by this share, and stay when the throughput grew by at least `worth` times it. */
  step: number;
  worth: number;
  /** The share while every try was worth nearly all of it. */
  eager: number;
  /**
   * After a try that was taken back the next one waits so long; longer each time, up to 8 times as long. Half
   * as long, each time, where the workers had nothing to train.
   */
  retry: number;
  /** Workers leave when they have nothing to do for this share of the time. */
  idleWorkers: number;
  /** A worker whose samples take so many times as long as the median's is replaced. */
  straggler: number;
  /** In each of the last windows of so many seconds. */
  stragglerWindow: number;
  stragglerWindows: number;
}

export const DEFAULT_AUTOSCALE: Readonly<Policy> = {
  ps: { least: 1, most: 64 },
  workers: { least: 1, most: 64 },
  leaveWorkers: false,
  budgetPerHour: 20,
  settle: 120,
  window: 180,
  slopeWindow: 1800,
  remember: 7200,
  moveBytes: 20 * 2 ** 20,
  startup: 120,
  moves: 3,
  brim: 0.85,
  full: 0.7,
  hot: 0.8,
  busy: 0.65,
  uneven: 0.6,
  idleFull: 0.6,
  idleBusy: 0.5,
  idleFor: 900,
  step: 0.2,
  worth: 0.5,
  eager: 0.5,
  retry: 1800,
  idleWorkers: 0.2,
  straggler: 1.5,
  stragglerWindow: 30,
  stragglerWindows: 5,
};

/** The default policy with what is given in its place. */
export function policyWith(given: Partial<Policy>): Policy {
  return { ...DEFAULT_AUTOSCALE, ...given };
}
