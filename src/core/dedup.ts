/**
 * Which pushes of which clients a stream position includes (rule 5). Sequence numbers per (client, shard) are contiguous,
 * so one number per client says it all; refused pushes consume their number and are remembered for a while, so that a
 * retry gets the same refusal.
 */
import type { PeerId } from '../protocol/map.js';
import type { DedupEntry, PushId, Refusal } from '../protocol/messages.js';

/** Refusals remembered per client; at least a client's window of unacknowledged pushes. */
const MAX_REFUSALS = 64;

interface Entry {
  last: number;
  refused: [cseq: number, code: Refusal][];
}

export class Dedup {
  private readonly clients = new Map<PeerId, Entry>();

  static from(entries: readonly DedupEntry[]): Dedup {
    const dedup = new Dedup();
    for (const [client, last, refused] of entries) dedup.clients.set(client, { last, refused: [...refused] });
    return dedup;
  }

  copy(): Dedup {
    return Dedup.from(this.entries());
  }

  last(client: PeerId): number {
    return this.clients.get(client)?.last ?? 0;
  }

  refusal(client: PeerId, cseq: number): Refusal | undefined {
    return this.clients.get(client)?.refused.find(([number]) => number === cseq)?.[1];
  }

  record(id: PushId): void {
    const [client, cseq, code] = id;
    let entry = this.clients.get(client);
    if (!entry) {
      entry = { last: 0, refused: [] };
      this.clients.set(client, entry);
    }
    // Numbers only grow: an id that is recorded again changes nothing.
    if (cseq <= entry.last) return;
    entry.last = cseq;
    if (code === undefined) return;
    entry.refused.push([cseq, code]);
    if (entry.refused.length > MAX_REFUSALS) entry.refused.shift();
  }

  entries(): DedupEntry[] {
    return [...this.clients].map(([client, entry]) => [client, entry.last, entry.refused]);
  }
}
