/**
 * Pulls that wait at a shard for it to become active or for lost blocks: bounded, and each with a deadline.
 */
import { type BlockList, type NativeShard, PushStatus } from '../../native.js';
import type { PeerId } from '../../protocol/map.js';
import type { Refusal } from '../../protocol/messages.js';
import type { OwnerHost } from './host.js';
import { REFUSALS } from './refusals.js';

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
    const full = this.parked.length >= this.host.policy.maxParked;
    if (full || !this.host.waiting.take(section.byteLength)) this.reject(client, id, item, 'LIMIT');
    else this.parked.push({ client, id, item, section: section.slice(), since: this.host.now });
  }

  /** Answers what can be answered now; asks for the blocks that the rest needs. */
  serve(demand: (blocks: BlockList) => void): void {
    if (this.parked.length === 0) return;
    const waiting = this.parked;
    this.parked = [];
    for (const pull of waiting) {
      const rows = this.native.pull(pull.section);
      if (rows === PushStatus.ABSENT) {
        demand(this.native.missing());
        this.parked.push(pull);
        continue;
      }
      this.host.waiting.give(pull.section.byteLength);
      if (typeof rows !== 'number') this.answer(pull.client, pull.id, pull.item, rows);
      else this.reject(pull.client, pull.id, pull.item, REFUSALS[rows] ?? 'INTERNAL');
    }
  }

  expire(): void {
    if (this.parked.length === 0) return;
    const deadline = this.host.now - this.host.policy.parkedPullMs;
    const late = this.parked.filter((pull) => pull.since < deadline);
    if (late.length === 0) return;
    this.parked = this.parked.filter((pull) => pull.since >= deadline);
    this.rejectEach(late, 'TIMEOUT');
  }

  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void {
    this.host.answer(client, id, item, rows);
  }

  reject(client: PeerId, id: number, item: number, code: Refusal): void {
    this.host.out.send(client, { t: 'reject', id, items: [[item, code]] });
  }

  rejectAll(code: Refusal): void {
    const all = this.parked;
    this.parked = [];
    this.rejectEach(all, code);
  }

  /** Who waited asks again elsewhere: the shard is not ours any more. */
  clear(): void {
    for (const { section } of this.parked) this.host.waiting.give(section.byteLength);
    this.parked = [];
  }

  private rejectEach(pulls: readonly ParkedPull[], code: Refusal): void {
    for (const { client, id, item, section } of pulls) {
      this.host.waiting.give(section.byteLength);
      this.reject(client, id, item, code);
    }
  }
}
