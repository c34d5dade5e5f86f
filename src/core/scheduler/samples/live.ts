/** A data set: its durable state, its soft state, and queries over both. */
import type { PeerId } from '../../../protocol/map.js';
import type { DatasetStatus } from '../../../protocol/samples.js';
import { Clocks } from './clocks.js';
import { Doubts } from './doubts.js';
import { Holders } from './holders.js';
import { RangePlan, rangesLeft } from './ranges.js';
import type { DatasetState, OpenRange } from './state.js';

/** The soft state of a data set, beside its durable state. */
export interface LiveDataset {
  /** The place of the data set in the list of the durable state. It never changes. */
  index: number;
  state: DatasetState;
  plan: RangePlan;
  holders: Holders;
  /**
   * Range -> milliseconds at which its lease ends.
   */
  deadlines: Map<number, number>;
  /** Milliseconds before which no lease and no doubt ends. */
  dueAt: number;
  /** Leases that expired, and of which it is not known why. */
  doubts: Doubts;
  /** Range -> its batches that are done by the durable state. */
  saved: Map<number, number>;
  /** Worker -> the request that waits for a range. */
  waiting: Map<PeerId, number>;
  clocks: Clocks;
}

export function newLive(index: number, state: DatasetState, leaseMs: number): LiveDataset {
  return {
    index,
    state,
    plan: new RangePlan(state.spec),
    holders: new Holders(state.open),
    deadlines: new Map(),
    dueAt: Number.POSITIVE_INFINITY,
    doubts: new Doubts(leaseMs),
    saved: new Map(),
    waiting: new Map(),
    clocks: new Clocks(state.spec.staleness),
  };
}

/** Takes what a worker says of a range. Batches that are durable stay so, whoever has the lease. */
export function report({ doubts }: LiveDataset, range: OpenRange, done: number, begun: number): void {
  range.done = Math.max(range.done, done);
  range.begun = Math.max(range.begun, begun, range.done);
  doubts.passed(range);
}

/** Moves all deadlines by time in which no worker could report. */
export function delay(live: LiveDataset, ms: number): void {
  for (const [number, deadline] of live.deadlines) live.deadlines.set(number, deadline + ms);
  live.doubts.delay(ms);
  live.dueAt += ms;
}

/** The next range that was handed back, or lost by its worker, and does not wait for what is in doubt. */
export function firstFree({ holders, doubts }: LiveDataset, maxFailures: number): OpenRange | undefined {
  return holders.of(0).find((range) => !doubts.holdBack(range, maxFailures));
}

/** Where the samples of a range are, for people. */
export function placeOf({ plan, state }: LiveDataset, { number, piece }: OpenRange) {
  const where = plan.at(number, piece);
  return { ...where, fileName: state.spec.files[where.file]?.name ?? '' };
}

export function isComplete({ state, plan }: LiveDataset): boolean {
  return !state.growth && state.next === plan.total && state.open.size === 0;
}

export function statusOf(live: LiveDataset): DatasetStatus {
  const { name, spec, next, finished, open, samples, redone, setAside, growth } = live.state;
  const { epochs } = spec;
  const ranges = growth ? next + rangesLeft(spec, growth) : live.plan.total;
  return {
    ...{ name, epochs, ranges, finished, open: open.size },
    ...{ samples: [...samples], redone, setAside: [...setAside], complete: isComplete(live) },
  };
}
