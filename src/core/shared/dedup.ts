/**
 * De-duplication: the pushes that a stream position includes. Rule 5: a client numbers its pushes for each
 * shard from 1 without gaps, so one number per client is enough. A refused push uses its number up, and the
 * newest refusals are remembered, so that a repeated push gets the same refusal. Refusals have a map of their
 * own: a node has many of these tables, and a client without refusals takes a few bytes in each.
 *
 * A client whose session has ended leaves a tombstone: a late copy of its first push would otherwise look
 * like the first push of a new client. Rule 31: owner and sinks forget a client at the same position, and
 * remember that its session ended. Ids only grow and are never reused, so tombstones are ranges of ids, at
 * most one between any two open sessions.
 */
import { invariant } from '../../common/errors.js';
import type { PeerId } from '../../protocol/map.js';
import type { DedupEntry, EndedSessions, Refusal, SkippedPushes, StreamId } from '../../protocol/messages.js';
import type { SessionRange } from './session-ranges.js';

/**
 * Pushes of one client to one shard that are under way at a time; further ones wait for their answers. Owners
 * remember as many refusals: a push whose answer was lost and that is sent again must be told that it was
 * refused.
 */
export const PUSH_WINDOW = 64;

type RefusedPush = [cseq: number, code: Refusal];

export class Dedup {
  /** Client -> number of its newest push here, from 1. The number only grows; `end` forgets the client. */
  private readonly lastOf = new Map<PeerId, number>();
  /** Client -> its newest refusals, ascending, at most `PUSH_WINDOW`. A client without any has no entry. */
  private readonly refusedOf = new Map<PeerId, RefusedPush[]>();
  /** Ids of ended sessions: ascending ranges that do not touch. No id in a range is a key of `lastOf`. */
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

  /** Clients with pushes here. The session of none of them is known to have ended. */
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

  /** End of the last range that begins at or before `id`; -1: no range does. */
  private endedUpTo(id: PeerId): PeerId {
    return this.ended[this.rangesBefore(id + 1) - 1]?.[1] ?? -1;
  }

  /** Number of the ranges that begin before `id`. */
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
   * The ranges of ended sessions that are to be recorded here: a range with a client of this table, or one
   * that joins tombstones. The ranges reach from one open session to the next, so there is at most one
   * tombstone more than there are open sessions.
   */
  tombstones(ranges: readonly SessionRange[]): EndedSessions[] {
    const found: EndedSessions[] = [];
    for (const [first, last] of ranges)
      if (this.clientsIn(first, last, 1).length > 0 || this.touching(first, last)[1] > 1)
        found.push([first, last, 'ENDED']);
    return found;
  }

  /**
   * Clients of this table in a range of ids, at most `max`. Ids that have ended are passed over: an old range
   * grows only at its end.
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

  /** The tombstones that a range overlaps or touches: index of the first, and their number. */
  private touching(first: PeerId, last: PeerId): [at: number, count: number] {
    let at = this.rangesBefore(first);
    if (at > 0 && this.ended[at - 1]![1] >= first - 1) at--;
    return [at, Math.max(0, this.rangesBefore(last + 2) - at)];
  }

  /** Records an id for the first time: the next number of its client, a skip, or the end of sessions. */
  append(id: StreamId): void {
    const last = isTombstone(id) ? 0 : this.last(id[0]);
    if (isSkip(id)) invariant(id[1] > last, 'what is skipped is above what was recorded', { id, last });
    else if (!isTombstone(id)) {
      invariant(id[1] === last + 1, 'numbers of a client are recorded once, in order', { id, last });
      invariant(last > 0 || !this.hasEnded(id[0]), 'nothing is taken of a session that has ended', { id });
    }
    this.record(id);
  }

  /** Records an id that may have been recorded before. */
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

/** True if the id stands for numbers that the shard has forgotten. */
export function isSkip(id: StreamId): id is SkippedPushes {
  return id[2] === 'SKIPPED';
}
