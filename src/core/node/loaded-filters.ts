/**
 * The filters of a shard that is loaded from a checkpoint. A filter is the sum of what its sources have
 * counted in its slots, as if all keys had come to one: no key counts less than before. Where the checkpoint
 * has other shards, the slots at both ends of a shard may have keys of its neighbours, too.
 *
 * Only what the newest checkpoint of a chain wrote counts: each one writes a filter as a whole.
 */
import { PushStatus } from '../../engine/native.js';
import type { FilterCounters, FilterState } from '../../engine/snapshots.js';
import { checkpointOfSegment, type SegmentRef } from '../../protocol/checkpoints.js';
import type { Owner } from '../shard/owner.js';
import type { Outbox } from '../shared/outbox.js';

/** Slots of a filter, as a file has them. */
export interface FetchedFilter extends FilterCounters {
  state: FilterState;
}

interface FetchedSlots {
  name: string;
  filter?: FetchedFilter | undefined;
}

/** A shard of the checkpoint. */
interface FilterSource {
  group: number;
  member: number;
  segments: readonly SegmentRef[];
}

type Own = FilterState & { table: number };

const NO_SLOTS = new BigUint64Array(0);
const NO_COUNTERS = new Uint8Array(0);

/** Sightings in which each slot of a filter begins again once. */
const lapOf = (capacity: number): number => Math.max(1, Math.floor(capacity / 2));

/** Sightings of keys in slots that both have. In other shards, what a filter forgets begins anew. */
function sharedSightings(own: FilterState, { first, slots, capacity, waiting }: FilterState): number {
  const both = Math.min(own.first + own.slots, first + slots) - Math.max(own.first, first);
  return (Math.min(waiting, lapOf(capacity)) * Math.max(0, both)) / slots;
}

export class LoadedFilters {
  private readonly own: readonly Own[];
  /** Filters of sources that were found: name of the table and the source -> its filter. */
  private readonly found = new Map<string, Map<FilterSource, FilterState>>();

  constructor(
    private readonly owner: Pick<Owner, 'native' | 'group' | 'member'>,
    private readonly sources: readonly FilterSource[],
    private readonly nameOf: (table: number) => string,
  ) {
    this.own = owner.native.filters();
  }

  /** Puts the slots of a file into the shard: all of them or none. Returns the status of the engine. */
  take(segment: SegmentRef, tables: readonly FetchedSlots[]): number {
    const source = this.sources.find(({ segments }) => segments.includes(segment));
    const newest = source?.segments.at(-1);
    if (!newest || checkpointOfSegment(newest.name) !== checkpointOfSegment(segment.name))
      return PushStatus.APPLIED;
    const taken = tables.flatMap(({ name, filter }) => {
      const own = this.own.find(({ table }) => this.nameOf(table) === name);
      return own && filter && fits(own, filter.state) ? [{ name, own, ...filter }] : [];
    });
    // Memory comes first: counters that were added are not added again.
    const { native } = this.owner;
    for (const { own, slots } of taken) {
      const status = slots.length > 0 ? native.loadFilter(own.table, NO_SLOTS, NO_COUNTERS, 0) : 0;
      if (status !== PushStatus.APPLIED) return status;
    }
    for (const { own, slots, counters } of taken) {
      const status = slots.length > 0 ? native.loadFilter(own.table, slots, counters, 0) : 0;
      if (status !== PushStatus.APPLIED) return status;
    }
    for (const { name, state } of taken) {
      if (!this.found.has(name)) this.found.set(name, new Map());
      this.found.get(name)!.set(source!, state);
    }
    return PushStatus.APPLIED;
  }

  /** All files are in the shard. Says which filters are not exactly those of the checkpoint. */
  finish(out: Pick<Outbox, 'event'>): number {
    for (const own of this.own) {
      const name = this.nameOf(own.table);
      if (name === '') continue;
      const found = this.found.get(name) ?? new Map<FilterSource, FilterState>();
      const states = [...found.values()];
      const isSame = states.length === 1 && this.sources.length === 1 && isExactly(own, states[0]!);
      const waiting = isSame ? states[0]!.waiting : this.waitingOf(own, states);
      if (waiting > 0) {
        const status = this.owner.native.loadFilter(own.table, NO_SLOTS, NO_COUNTERS, waiting);
        if (status !== PushStatus.APPLIED) return status;
      }
      if (isSame) continue;
      const { group, member } = this.owner;
      const fields = { group: group.id, member, table: name, sources: this.sources.length };
      out.event('restore.filter', { ...fields, found: states.length });
    }
    return PushStatus.APPLIED;
  }

  private waitingOf(own: Own, states: readonly FilterState[]): number {
    const sum = states.reduce((total, state) => total + sharedSightings(own, state), 0);
    return Math.min(lapOf(own.capacity), Math.ceil(sum));
  }
}

/** Keys have the same counters in both. */
function fits(own: FilterState, { line, hashes }: FilterState): boolean {
  return own.line === line && own.hashes === hashes;
}

function isExactly(own: FilterState, { first, slots, capacity }: FilterState): boolean {
  return own.first === first && own.slots === slots && own.capacity === capacity;
}
