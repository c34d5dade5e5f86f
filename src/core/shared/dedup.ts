/**
 * Which pushes of which clients a stream position includes (rule 5). Sequence numbers per (client, shard) are
 * contiguous, so one number per client is enough. A refused push uses its number up, and the newest refusals
 * are remembered, so that a retry gets the same refusal. They have a map of their own: a node has many of
 * these tables, and a client without refusals takes a few bytes in each.
 *
 * A tombstone stays of a client whose session has ended: a late copy of its first push would otherwise look
 * like the first push of a new client. Ids only grow and are never reused, so tombstones are ranges of ids,
 * at most one between any two open sessions (rule 31).
 */
import { invariant } from '../../errors.js';
import type { PeerId } from '../../protocol/map.js';
import type { DedupEntry, EndedSessions, Refusal, SkippedPushes, StreamId } from '../../protocol/messages.js';
import type { SessionRange } from './session-ranges.js';

/**
 * Pushes of one client to one shard that are under way at a time; further ones wait for their answers. Owners
 * remember as many refusals: a push whose answer was lost and that is sent again must be told that it was
 * refused.
 */
export const PUSH_WINDOW = 64;

type Refused = [cseq: number, code: Refusal];

export class Dedup {
  private readonly lastOf = new Map<PeerId, number>();
  /** Of clients with refusals. */
  private readonly refusedOf = new Map<PeerId, Refused[]>();
  /** Ended sessions: ascending ranges with open ones between them. */
  private ended: [first: PeerId, last: PeerId][] = [];

  static from(entries: readonly DedupEntry[]): Dedup {
    const dedup = new Dedup();
    for (const entry of entries) {
      if (isTombstone(entry)) {
        dedup.end(entry[0], entry[1]);
        continue;
      }
      const [client, last, refused] = entry;
      dedup.lastOf.set(client, last);
      if (refused.length > 0) dedup.refusedOf.set(client, [...refused]);
    }
    return dedup;
  }

  copy(): Dedup {
    return Dedup.from(this.entries());
  }

  last(client: PeerId): number {
    return this.lastOf.get(client) ?? 0;
  }

  refusal(client: PeerId, cseq: number): Refusal | undefined {
    return this.refusedOf.get(client)?.find(([number]) => number === cseq)?.[1];
  }

  /** Clients with pushes here whose session is not known to have ended. */
  clients(): PeerId[] {
    return [...this.lastOf.keys()];
  }

  /** How many entries this table has: clients, and ranges of ended sessions. */
  get size(): number {
    return this.lastOf.size + this.ended.length;
  }

  hasEnded(client: PeerId): boolean {
    return this.endedUpTo(client) >= client;
  }

  /** End of the range that begins at or before an id; -1: there is none. */
  private endedUpTo(id: PeerId): PeerId {
    return this.ended[this.rangesBefore(id + 1) - 1]?.[1] ?? -1;
  }

  /** How many ranges begin before an id. */
  private rangesBefore(id: PeerId): number {
    let [low, high] = [0, this.ended.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.ended[middle]![0] < id) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * Which of these ranges of ended sessions are to be recorded here: those that have a client of this table,
   * and those that join tombstones. The ranges reach from one open session to the next, so there are no more
   * tombstones than open sessions, plus one.
   */
  tombstones(ranges: readonly SessionRange[]): EndedSessions[] {
    const found: EndedSessions[] = [];
    for (const [first, last] of ranges)
      if (this.clientsIn(first, last, 1).length > 0 || this.touching(first, last)[1] > 1)
        found.push([first, last, 'ENDED']);
    return found;
  }

  /**
   * Clients of this table in a range of ids, at most `max`. Ids that have ended are passed over, because an
   * old range grows at its end only.
   */
  private clientsIn(first: PeerId, last: PeerId, max = Number.POSITIVE_INFINITY): PeerId[] {
    const found: PeerId[] = [];
    if (this.lastOf.size === 0) return found;
    let looked = 0;
    for (let id = first; id <= last && found.length < max; id++) {
      const ended = this.endedUpTo(id);
      if (ended >= id) id = ended;
      else if (this.lastOf.has(id)) found.push(id);
      // The range is wider than this table: it is looked through instead.
      if (++looked > this.lastOf.size) return this.clients().filter((each) => first <= each && each <= last);
    }
    return found;
  }

  /** Tombstones that a range overlaps or touches: the first of them, and how many. */
  private touching(first: PeerId, last: PeerId): [at: number, count: number] {
    let at = this.rangesBefore(first);
    if (at > 0 && this.ended[at - 1]![1] >= first - 1) at--;
    return [at, Math.max(0, this.rangesBefore(last + 2) - at)];
  }

  /** Records what was never recorded here: the next number of its client, or the end of sessions. */
  append(id: StreamId): void {
    const last = isTombstone(id) ? 0 : this.last(id[0]);
    if (isSkip(id)) invariant(id[1] > last, 'what is skipped is above what was recorded', { id, last });
    else if (!isTombstone(id)) {
      invariant(id[1] === last + 1, 'numbers of a client are recorded once, in order', { id, last });
      invariant(last > 0 || !this.hasEnded(id[0]), 'nothing is taken of a session that has ended', { id });
    }
    this.record(id);
  }

  record(id: StreamId): void {
    if (isTombstone(id)) {
      this.end(id[0], id[1]);
      return;
    }
    const [client, cseq, code] = id;
    // Numbers only grow, so recording an id again changes nothing.
    if (cseq <= this.last(client)) return;
    this.lastOf.set(client, cseq);
    if (code === undefined || code === 'SKIPPED') return;
    const refused = this.refusedOf.get(client) ?? [];
    refused.push([cseq, code]);
    if (refused.length > PUSH_WINDOW) refused.shift();
    this.refusedOf.set(client, refused);
  }

  /** Adds a range, joined with those that it overlaps or touches. */
  private end(first: PeerId, last: PeerId): void {
    for (const client of this.clientsIn(first, last)) {
      this.lastOf.delete(client);
      this.refusedOf.delete(client);
    }
    const [at, count] = this.touching(first, last);
    const joined = this.ended.slice(at, at + count);
    const from = Math.min(first, joined[0]?.[0] ?? first);
    this.ended.splice(at, count, [from, Math.max(last, joined.at(-1)?.[1] ?? last)]);
  }

  entries(): DedupEntry[] {
    return [
      ...this.ended.map(([first, last]): EndedSessions => [first, last, 'ENDED']),
      ...[...this.lastOf].map(
        ([client, last]): DedupEntry => [client, last, [...(this.refusedOf.get(client) ?? [])]],
      ),
    ];
  }
}

export function isTombstone(id: StreamId | DedupEntry): id is EndedSessions {
  return id[2] === 'ENDED';
}

/** Numbers that a shard has forgotten. */
export function isSkip(id: StreamId): id is SkippedPushes {
  return id[2] === 'SKIPPED';
}
