/**
 * The evicted keys of a shard, kept while somebody asks for them. Rule 49: a key is told when the delta that
 * evicted it is durable, in the order of the stream; its position is its number in this ownership. A reader
 * whose position is of another ownership, or is no longer kept, is answered from another position than it
 * asked for. So it knows that it may have missed some.
 */
import type { EvictedKeys, WatchedShard } from '../../engine/policies.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { EvictedBytes } from '../shared/evicted-bytes.js';
import type { OwnerHost } from './host.js';

const ENTRY_BYTES = 9;
const LEAST_ENTRIES = 4;
const MOST_ENTRIES = 4096;
/** A ring has so many segments at least before its oldest one is forgotten, where its share allows it. */
const SEGMENTS = 4;

/** Entries that follow one another; `keys` and `reasons` have room for more than `count`. */
interface RingSegment {
  /** Number of the first entry. */
  at: number;
  count: number;
  keys: BigUint64Array;
  reasons: Uint8Array;
}

/** Durable evictions of one table: those with the numbers from `first` to before `end`. */
class EvictionRing {
  askedAt = 0;
  private segments: RingSegment[] = [];

  constructor(
    readonly table: number,
    /** Number of the oldest entry that is kept. Only grows. */
    public first: number,
    private readonly account: EvictedBytes,
  ) {
    this.end = first;
    account.rings++;
  }

  /** Number of the next entry. Only grows. */
  end: number;

  append({ keys, reasons }: EvictedKeys): void {
    for (let done = 0; done < keys.length; ) {
      let last = this.segments.at(-1);
      if (!last || last.count === last.keys.length) last = this.grow(last);
      const count = Math.min(keys.length - done, last.keys.length - last.count);
      last.keys.set(keys.subarray(done, done + count), last.count);
      last.reasons.set(reasons.subarray(done, done + count), last.count);
      last.count += count;
      this.end += count;
      done += count;
      this.trim();
    }
  }

  private grow(last: RingSegment | undefined): RingSegment {
    const most = Math.min(MOST_ENTRIES, Math.floor(this.account.share / ENTRY_BYTES / SEGMENTS));
    const size = Math.max(LEAST_ENTRIES, Math.min(most, 2 * (last?.keys.length ?? 0)));
    const segment = { at: this.end, count: 0, keys: new BigUint64Array(size), reasons: new Uint8Array(size) };
    this.account.add(size * ENTRY_BYTES);
    this.segments.push(segment);
    return segment;
  }

  private get bytes(): number {
    return this.segments.reduce((sum, { keys }) => sum + keys.length * ENTRY_BYTES, 0);
  }

  /** Forgets the oldest entries that are beyond the share. */
  trim(): void {
    let beyond = this.bytes - this.account.share;
    while (beyond > 0 && this.segments.length > 0) {
      const { keys } = this.segments.shift()!;
      this.account.add(-keys.length * ENTRY_BYTES);
      beyond -= keys.length * ENTRY_BYTES;
    }
    this.first = this.segments[0]?.at ?? this.end;
  }

  /** At most `max` entries, from number `from` on. */
  read(from: number, max: number): EvictedKeys {
    const count = Math.min(max, this.end - from);
    const keys = new BigUint64Array(count);
    const reasons = new Uint8Array(count);
    for (const segment of this.segments) {
      const start = Math.max(from, segment.at);
      const end = Math.min(from + count, segment.at + segment.count);
      if (start >= end) continue;
      keys.set(segment.keys.subarray(start - segment.at, end - segment.at), start - from);
      reasons.set(segment.reasons.subarray(start - segment.at, end - segment.at), start - from);
    }
    return { keys, reasons };
  }

  /** Nobody asks any more. */
  close(): void {
    this.account.add(-this.bytes);
    this.account.rings--;
  }
}

/** Evictions of one batch that is not durable. */
interface PendingEvictions {
  seq: number;
  bytes: number;
  lists: { ring: EvictionRing; evicted: EvictedKeys }[];
}

export class ShardEvictions {
  /** By table. A table is watched exactly while it has a ring. */
  private readonly rings = new Map<number, EvictionRing>();
  /** Ascending by `seq`. */
  private pending: PendingEvictions[] = [];
  /** Above every number of the rings that are over: so a position of one of them is not kept. */
  private past = 0;

  constructor(
    /** Generation of the ownership. */
    private readonly gen: number,
    private readonly native: WatchedShard,
    private readonly host: Pick<OwnerHost, 'policy' | 'deltaBytes' | 'evicted' | 'now'>,
  ) {}

  /** Answers a reader. Its first question begins the ring. */
  read({ table, gen, from, max }: MessageOf<'evictions'>): EvictedKeys & { from: number; end: number } {
    const ring = this.rings.get(table) ?? this.begin(table);
    ring.askedAt = this.host.now;
    const isKept = gen === this.gen && ring.first <= from && from <= ring.end;
    const at = gen === 0 ? ring.end : isKept ? from : ring.first;
    return { ...ring.read(at, max), from: at, end: ring.end };
  }

  private begin(table: number): EvictionRing {
    const ring = new EvictionRing(table, this.past, this.host.evicted);
    this.rings.set(table, ring);
    this.native.watch(table, true);
    return ring;
  }

  /** The open batch becomes batch `seq`. */
  flushing(seq: number): void {
    if (this.rings.size === 0) return;
    const lists = this.native.takeEvicted().map(({ table, ...evicted }) => {
      return { ring: this.rings.get(table)!, evicted };
    });
    if (lists.length === 0) return;
    const bytes = lists.reduce((sum, { evicted }) => sum + evicted.keys.length * ENTRY_BYTES, 0);
    this.host.deltaBytes.addUncommitted(bytes);
    this.pending.push({ seq, bytes, lists });
  }

  /** Everything up to batch `seq` is durable. */
  committed(seq: number): void {
    while (this.pending.length > 0 && this.pending[0]!.seq <= seq) {
      const { bytes, lists } = this.pending.shift()!;
      this.host.deltaBytes.addUncommitted(-bytes);
      for (const { ring, evicted } of lists) if (this.rings.get(ring.table) === ring) ring.append(evicted);
    }
  }

  dropTables(tables: readonly number[]): void {
    for (const table of tables) this.end(this.rings.get(table));
  }

  tick(): void {
    const { now, policy } = this.host;
    for (const ring of this.rings.values()) {
      if (now - ring.askedAt > policy.evictedMs) this.end(ring);
      else ring.trim();
    }
  }

  private end(ring: EvictionRing | undefined): void {
    if (!ring) return;
    ring.close();
    this.rings.delete(ring.table);
    this.native.watch(ring.table, false);
    this.past = Math.max(this.past, ring.end + 1);
  }

  /** The ownership is over. */
  close(): void {
    for (const { bytes } of this.pending) this.host.deltaBytes.addUncommitted(-bytes);
    this.pending = [];
    for (const ring of this.rings.values()) this.end(ring);
  }
}
