/**
 * Pushes that wait at a shard, one line per client: for the shard to become active, for lost blocks, or for
 * room. A line is contiguous, so the order of a client's pushes is kept; what does not fit is dropped and the
 * client sends it again.
 */
import type { PeerId } from '../../protocol/map.js';
import type { Policy } from '../shared/policy.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';

interface HeldPush {
  cseq: number;
  section: Uint8Array;
}

export class PushLines {
  private readonly lines = new Map<PeerId, HeldPush[]>();

  constructor(
    private readonly policy: Policy,
    private readonly bytes: WaitingBytes,
  ) {}

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
    const fits = line
      ? cseq === (line.at(-1)?.cseq ?? 0) + 1 && line.length < this.policy.maxHeldPushes
      : this.lines.size < this.policy.maxParked;
    if (!fits || !this.bytes.takeForPush(section.byteLength)) return;
    const held = { cseq, section: section.slice() };
    if (line) line.push(held);
    else this.lines.set(client, [held]);
  }

  first(client: PeerId): HeldPush | undefined {
    return this.lines.get(client)?.[0];
  }

  shift(client: PeerId): void {
    const line = this.lines.get(client);
    const held = line?.shift();
    if (held) this.bytes.give(held.section.byteLength);
    if (line?.length === 0) this.lines.delete(client);
  }

  drop(client: PeerId): void {
    for (const { section } of this.lines.get(client) ?? []) this.bytes.give(section.byteLength);
    this.lines.delete(client);
  }

  clear(): void {
    for (const client of this.clients()) this.drop(client);
  }
}
