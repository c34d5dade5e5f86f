/**
 * Pushes that wait at a shard, one line per client: for the shard to become active, for lost blocks, or for room. A line is
 * contiguous, so the order of a client's pushes is kept; what does not fit is dropped and the client sends it again.
 */
import type { PeerId } from '../protocol/map.js';
import type { Policy } from './policy.js';

interface HeldPush {
  cseq: number;
  section: Uint8Array;
}

export class PushLines {
  private readonly lines = new Map<PeerId, HeldPush[]>();

  constructor(private readonly policy: Policy) {}

  get any(): boolean {
    return this.lines.size > 0;
  }

  waiting(client: PeerId): boolean {
    return this.lines.has(client);
  }

  clients(): PeerId[] {
    return [...this.lines.keys()];
  }

  /** Copies the section, which is a view that ends with the call. */
  hold(client: PeerId, cseq: number, section: Uint8Array): void {
    const line = this.lines.get(client);
    if (!line) {
      if (this.lines.size < this.policy.maxParked)
        this.lines.set(client, [{ cseq, section: section.slice() }]);
      return;
    }
    const last = line.at(-1)?.cseq ?? 0;
    if (cseq === last + 1 && line.length < this.policy.maxHeldPushes)
      line.push({ cseq, section: section.slice() });
  }

  first(client: PeerId): HeldPush | undefined {
    return this.lines.get(client)?.[0];
  }

  shift(client: PeerId): void {
    const line = this.lines.get(client);
    line?.shift();
    if (line?.length === 0) this.lines.delete(client);
  }

  drop(client: PeerId): void {
    this.lines.delete(client);
  }
}
