/**
 * Goodput of a local run, from its events. Every worker has a place from the start of its first process until
 * its last sign of life, so the time between a SIGKILL and the next process of that name counts as allocated.
 */

import { sumOf } from '../../common/statistics.js';
import { type Allocation, goodputOf } from '../../protocol/goodput.js';
import { numberOf, type RoleEvent } from './events.js';

export interface GoodputReport extends Allocation {
  /** Null: there was no worker. */
  ratio: number | null;
}

const WORKER = /^worker-\d+$/;

interface TimelinePlace {
  first: number;
  last: number;
  /** Productive seconds that earlier processes of this name reported, and those of the newest one. */
  before: number;
  now: number;
}

/** `events` are in the order of their clocks. */
export function goodputReport(events: readonly RoleEvent[]): GoodputReport {
  const places = new Map<string, TimelinePlace>();
  for (const event of events) {
    const starts = event.event === 'process.started';
    const name = starts ? String(event.name) : event.source;
    if (!WORKER.test(name)) continue;
    const place = places.get(name) ?? { first: event.mono, last: event.mono, before: 0, now: 0 };
    places.set(name, place);
    place.last = event.mono;
    if (starts) Object.assign(place, { before: place.before + place.now, now: 0 });
    if (event.event === 'worker.progress' || event.event === 'worker.done')
      place.now = numberOf(event, 'productiveSeconds');
  }
  const all = [...places.values()];
  const workers: Allocation = {
    productiveSeconds: sumOf(all, ({ before, now }) => before + now),
    allocatedSeconds: sumOf(all, ({ first, last }) => (last - first) / 1000),
  };
  return { ratio: goodputOf([workers]) ?? null, ...workers };
}

/** Goodput as a line of a summary. */
export function goodputLine({ ratio, productiveSeconds, allocatedSeconds }: GoodputReport): string {
  if (ratio === null) return 'goodput     -, there was no worker';
  const parts = `${productiveSeconds.toFixed(1)} s of ${allocatedSeconds.toFixed(1)} s of workers`;
  return `goodput     ${(100 * ratio).toFixed(1)} %: batches that counted took ${parts}`;
}
