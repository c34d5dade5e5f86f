/** Policy of the autoscaler: bounds, thresholds and times. Times are seconds, shares are of 1. */

export interface AutoscalePolicy {
  ps: { least: number; most: number };
  workers: { least: number; most: number };
  /** True: decide nothing about workers. */
  leaveWorkers: boolean;
  /**
   * At most so many decisions in an hour. Memory that runs out, and counts outside of their bounds, are
   * exempt.
   */
  budgetPerHour: number;
  /** Time after a decision in which no other one is made; the same two are exempt. */
  settle: number;
  /** Time that rates are taken over. */
  window: number;
  /** Time that the slope of memory is taken over. */
  slopeWindow: number;
  /** Time that observations and decisions are kept. */
  remember: number;
  /**
   * Bytes per second that moves bring to a node, and time until a new process serves. A longer wait for
   * processes that was observed counts instead of `startup`.
   */
  moveBytes: number;
  startup: number;
  /** PS are added when the fullest is full in less than `moves` times what a move takes. */
  moves: number;
  /** PS are added, too, when one is fuller than `brim`; so many that all are `full` full. */
  brim: number;
  full: number;
  /** A PS that is busier than `hot` is hot. So many PS are added that all are `busy` busy. */
  hot: number;
  busy: number;
  /** A hot PS leads to a rebalance, and not to more PS, while the mean of all is below this. */
  uneven: number;
  /** PS leave when those that stay are at most so full and so busy, for `idleFor` seconds. */
  idleFull: number;
  idleBusy: number;
  idleFor: number;
  /** Workers are added by this share, and stay when the throughput grew by at least `worth` times it. */
  step: number;
  worth: number;
  /** Share in place of `step`, as long as each try brought nearly all of its share. */
  eager: number;
  /**
   * Time until the next try after one that was taken back. It doubles with each further one, up to 8 times;
   * it is half as long where the workers had nothing to train.
   */
  retry: number;
  /** Workers leave when they have nothing to do for this share of the time. */
  idleWorkers: number;
  /** A worker whose samples take so many times as long as the median's is replaced. */
  straggler: number;
  /** Windows of so many seconds: samples must take so long in each of the last `stragglerWindows` of them. */
  stragglerWindow: number;
  stragglerWindows: number;
}

const DEFAULT_AUTOSCALE: Readonly<AutoscalePolicy> = {
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

/** The default policy, with the given fields in place of its own. */
export function policyWith(given: Partial<AutoscalePolicy>): AutoscalePolicy {
  return { ...DEFAULT_AUTOSCALE, ...given };
}
