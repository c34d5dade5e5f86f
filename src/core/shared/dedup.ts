/**
 * Which pushes of which clients a stream position includes (rule 5). Sequence numbers per (client, shard) are
 * contiguous, so one number per client is enough. A refused push uses its number up, and the newest refusals
 * are remembered, so that a retry gets the same refusal.
 *
 * A tombstone stays of a client whose session has ended: a late copy of its first push would otherwise look
 * like the first push of a new client. Ids only grow and are never reused, so tombstones are ranges of ids,
 * at most one between any two open sessions (rule 31).
 */
import { invariant } from '../../errors.js';
import type { PeerId } from '../../protocol/map.js';
import type { DedupEntry, EndedSessions, Refusal, StreamId } from '../../protocol/messages.js';

/**
 * Pushes of one client to one shard that are under way at a time; further ones wait for their answers. Owners
 * remember as many refusals: a push whose answer was lost and that is sent again must be told that it was
 * refused.
 */
export const PUSH_WINDOW = 64;

interface Entry {
  last: number;
  refused: [cseq: number, code: Refusal][];
}

export class Dedup {
  private readonly entriesOf = new Map<PeerId, Entry>();
  /** Ended sessions: ascending ranges with open ones between them. */
  private ended: [first: PeerId, last: PeerId][] = [];

  static from(entries: readonly DedupEntry[]): Dedup {
    const dedup = new Dedup();
    for (const entry of entries) {
      if (isTombstone(entry)) dedup.end(entry[0], entry[1]);
      else dedup.entriesOf.set(entry[0], { last: entry[1], refused: [...entry[2]] });
    }
    return dedup;
  }

  copy(): Dedup {
    return Dedup.from(this.entries());
  }

  last(client: PeerId): number {
    return this.entriesOf.get(client)?.last ?? 0;
  }

  refusal(client: PeerId, cseq: number): Refusal | undefined {
    return this.entriesOf.get(client)?.refused.find(([number]) => number === cseq)?.[1];
  }

  /** Clients with pushes here whose session is not known to have ended. */
  clients(): PeerId[] {
    return [...this.entriesOf.keys()];
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
   * Tombstones to record here, given that of all ids below `next` only `open` (ascending) are open sessions.
   * None if no client of this table has ended; else all ranges that are new, so that they join into few.
   */
  tombstones(next: PeerId, open: readonly PeerId[]): EndedSessions[] {
    const isOpen = new Set(open);
    if (!this.clients().some((client) => client < next && !isOpen.has(client))) return [];
    const found: EndedSessions[] = [];
    let first = 1;
    for (const id of [...open.filter((each) => each < next), next]) {
      if (first < id && this.endedUpTo(first) < id - 1) found.push([first, id - 1, 'ENDED']);
      first = id + 1;
    }
    return found;
  }

  /** Records what was never recorded here: the next number of its client, or the end of sessions. */
  append(id: StreamId): void {
    const last = isTombstone(id) ? 0 : this.last(id[0]);
    invariant(isTombstone(id) || id[1] === last + 1, 'numbers of a client are recorded once, in order', {
      id,
      last,
    });
    this.record(id);
  }

  record(id: StreamId): void {
    if (isTombstone(id)) {
      this.end(id[0], id[1]);
      return;
    }
    const [client, cseq, code] = id;
    let entry = this.entriesOf.get(client);
    if (!entry) {
      entry = { last: 0, refused: [] };
      this.entriesOf.set(client, entry);
    }
    // Numbers only grow: an id that is recorded again changes nothing.
    if (cseq <= entry.last) return;
    entry.last = cseq;
    if (code === undefined) return;
    entry.refused.push([cseq, code]);
    if (entry.refused.length > PUSH_WINDOW) entry.refused.shift();
  }

  /** Adds a range, joined with those that it overlaps or touches. */
  private end(first: PeerId, last: PeerId): void {
    let [from, to] = [first, last];
    let at = this.rangesBefore(first);
    if (at > 0 && this.ended[at - 1]![1] >= first - 1) from = this.ended[--at]![0];
    let count = 0;
    for (let next = this.ended[at]; next && next[0] <= last + 1; next = this.ended[at + ++count])
      to = Math.max(to, next[1]);
    this.ended.splice(at, count, [from, to]);
    if (last - first < this.entriesOf.size) {
      for (let client = first; client <= last; client++) this.entriesOf.delete(client);
    } else {
      for (const client of this.entriesOf.keys())
        if (first <= client && client <= last) this.entriesOf.delete(client);
    }
  }

  entries(): DedupEntry[] {
    return [
      ...this.ended.map(([first, last]): EndedSessions => [first, last, 'ENDED']),
      ...[...this.entriesOf].map(([client, entry]): DedupEntry => [client, entry.last, [...entry.refused]]),
    ];
  }
}

export function isTombstone(id: StreamId | DedupEntry): id is EndedSessions {
  return id[2] === 'ENDED';
}
