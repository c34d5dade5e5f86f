/** A data set: its durable state, its soft state, and queries over both. */
import type { PeerId } from '../../../protocol/map.js';
import type { DatasetStatus } from '../../../protocol/samples.js';
import { Clocks } from './clocks.js';
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
  /** Milliseconds before which no lease ends. */
  dueAt: number;
  /** Range -> its batches that are done by the durable state. */
  saved: Map<number, number>;
  /** Worker -> the request that waits for a range. */
  waiting: Map<PeerId, number>;
  clocks: Clocks;
}

export function newLive(index: number, state: DatasetState): LiveDataset {
  return {
    index,
    state,
    plan: new RangePlan(state.spec),
    holders: new Holders(state.open),
    deadlines: new Map(),
    dueAt: Number.POSITIVE_INFINITY,
    saved: new Map(),
    waiting: new Map(),
    clocks: new Clocks(state.spec.staleness),
  };
}

export function report(range: OpenRange, done: number, begun: number): void {
  range.done = Math.max(range.done, done);
  range.begun = Math.max(range.begun, begun, range.done);
}

/** Moves all deadlines by time in which no worker could report. */
export function delay(live: LiveDataset, ms: number): void {
  for (const [number, deadline] of live.deadlines) live.deadlines.set(number, deadline + ms);
  live.dueAt += ms;
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
