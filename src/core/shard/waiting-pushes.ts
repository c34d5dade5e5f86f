/**
 * Pushes that wait at a shard, one line per client, until the shard is active, has the lost blocks, or has
 * room. A line is contiguous, so the order of a client's pushes is kept. A push that does not fit is dropped,
 * and the client resends it.
 */
import type { PeerId } from '../../protocol/map.js';
import { rowsOf, type Work } from '../shared/turn.js';
import { WaitingList } from '../shared/waiting-list.js';
import type { OwnerHost } from './host.js';

interface WaitingPush extends Work {
  cseq: number;
  section: Uint8Array;
}

export class WaitingPushes {
  /** Client -> its line of numbers of pushes, ascending without gaps. No line is empty. */
  private readonly lines = new Map<PeerId, WaitingList<number>>();

  constructor(private readonly host: Pick<OwnerHost, 'policy' | 'waiting' | 'meter'>) {}

  get any(): boolean {
    return this.lines.size > 0;
  }

  waiting(client: PeerId): boolean {
    return this.lines.has(client);
  }

  clients(): PeerId[] {
    return [...this.lines.keys()];
  }

  add(client: PeerId, cseq: number, section: Uint8Array): void {
    const known = this.lines.get(client);
    if (known ? cseq !== (known.last?.item ?? 0) + 1 : this.lines.size >= this.host.policy.maxParked) return;
    const line = known ?? this.newLine();
    const { meter } = this.host;
    if (!line.add(cseq, [section], meter.at)) return;
    meter.push.waits();
    if (!known) this.lines.set(client, line);
  }

  private newLine(): WaitingList<number> {
    return new WaitingList({
      maxCount: this.host.policy.maxHeldPushes,
      account: this.host.waiting.forPushes,
      atLimit: 'refuse',
    });
  }

  first(client: PeerId): WaitingPush | undefined {
    const first = this.lines.get(client)?.first;
    if (!first) return undefined;
    const section = first.parts[0]!;
    return { cseq: first.item, section, rows: rowsOf(section), bytes: section.byteLength };
  }

  shift(client: PeerId): void {
    const line = this.lines.get(client);
    const held = line?.shift();
    if (held) this.host.meter.push.waited(this.host.meter.at - held.since);
    if (line?.length === 0) this.lines.delete(client);
  }

  drop(client: PeerId): void {
    this.lines.get(client)?.takeAll();
    this.lines.delete(client);
  }

  clear(): void {
    for (const client of this.clients()) this.drop(client);
  }
}
