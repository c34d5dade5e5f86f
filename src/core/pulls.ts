/** Pulls that wait at a shard for it to become active or for lost blocks: bounded, and each with a deadline. */
import { type BlockList, type NativeShard, PushStatus } from '../native.js';
import type { PeerId } from '../protocol/map.js';
import type { Refusal } from '../protocol/messages.js';
import { type OwnerHost, REFUSALS } from './owner.js';

interface ParkedPull {
  client: PeerId;
  id: number;
  item: number;
  section: Uint8Array;
  since: number;
}

export class ParkedPulls {
  private parked: ParkedPull[] = [];

  constructor(
    private readonly native: NativeShard,
    private readonly host: OwnerHost,
  ) {}

  get any(): boolean {
    return this.parked.length > 0;
  }

  /** Copies the section, which is a view that ends with the call. */
  park(client: PeerId, id: number, item: number, section: Uint8Array): void {
    if (this.parked.length >= this.host.policy.maxParked) this.reject(client, id, item, 'LIMIT');
    else this.parked.push({ client, id, item, section: section.slice(), since: this.host.now });
  }

  /** Answers what can be answered now; asks for the blocks that the rest needs. */
  serve(demand: (blocks: BlockList) => void): void {
    if (this.parked.length === 0) return;
    const waiting = this.parked;
    this.parked = [];
    for (const pull of waiting) {
      const rows = this.native.pull(pull.section);
      if (typeof rows !== 'number') this.answer(pull.client, pull.id, pull.item, rows);
      else if (rows === PushStatus.ABSENT) {
        demand(this.native.missing());
        this.parked.push(pull);
      } else this.reject(pull.client, pull.id, pull.item, REFUSALS[rows] ?? 'INTERNAL');
    }
  }

  expire(): void {
    if (this.parked.length === 0) return;
    const deadline = this.host.now - this.host.policy.parkedPullMs;
    for (const pull of this.parked)
      if (pull.since < deadline) this.reject(pull.client, pull.id, pull.item, 'TIMEOUT');
    this.parked = this.parked.filter((pull) => pull.since >= deadline);
  }

  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void {
    this.host.answer(client, id, item, rows);
  }

  reject(client: PeerId, id: number, item: number, code: Refusal): void {
    this.host.out.send(client, { t: 'reject', id, items: [[item, code]] });
  }

  rejectAll(code: Refusal): void {
    for (const pull of this.parked) this.reject(pull.client, pull.id, pull.item, code);
    this.parked = [];
  }
}
