/**
 * Pulls that wait at a shard for it to become active or for lost blocks: bounded, and each with a deadline.
 */
import { type BlockList, PushStatus } from '../../native.js';
import type { PeerId } from '../../protocol/map.js';
import type { Refusal } from '../../protocol/messages.js';
import { type WaitingEntry, WaitingList } from '../shared/waiting-list.js';
import type { OwnerHost } from './host.js';
import { REFUSALS } from './refusals.js';

/** One item of a pull. */
interface PullItem {
  client: PeerId;
  id: number;
  item: number;
  /** When it came, by the clock of `Meter`. */
  at: number;
}

/** Rows, or a status of the engine. */
type PullRows = (section: Uint8Array) => Uint8Array | number;

export class WaitingPulls {
  private readonly list: WaitingList<PullItem>;

  constructor(
    private readonly pull: PullRows,
    private readonly host: OwnerHost,
  ) {
    const maxCount = host.policy.maxParked;
    this.list = new WaitingList({ maxCount, account: host.waiting, atLimit: 'refuse' });
  }

  get any(): boolean {
    return this.list.length > 0;
  }

  park(client: PeerId, id: number, item: number, section: Uint8Array): void {
    const { meter } = this.host;
    const added = this.list.add({ client, id, item, at: meter.at }, [section], this.host.now);
    if (added) meter.pull.waits();
    else this.reject(client, id, item, 'LIMIT');
  }

  /** Answers what can be answered now; asks for the blocks that the rest needs. */
  serve(missing: () => BlockList, demand: (blocks: BlockList) => void): void {
    this.list.retain(({ item: { client, id, item, at }, parts }) => {
      const rows = this.pull(parts[0]!);
      if (rows === PushStatus.ABSENT) {
        demand(missing());
        return true;
      }
      this.host.meter.pull.waited(this.host.meter.at - at);
      if (typeof rows !== 'number') this.host.answer(client, id, item, rows);
      else this.reject(client, id, item, REFUSALS[rows] ?? 'INTERNAL');
      return false;
    });
  }

  expire(): void {
    this.rejectEach(this.list.takeBefore(this.host.now - this.host.policy.parkedPullMs), 'TIMEOUT');
  }

  reject(client: PeerId, id: number, item: number, code: Refusal): void {
    this.host.meter.pull.fails(code);
    this.host.out.send(client, { t: 'reject', id, items: [[item, code]] });
  }

  rejectAll(code: Refusal): void {
    this.rejectEach(this.list.takeAll(), code);
  }

  /** Drops all pulls: the shard has another owner, and clients ask that one. */
  clear(): void {
    this.list.takeAll();
  }

  private rejectEach(pulls: readonly WaitingEntry<PullItem>[], code: Refusal): void {
    const { meter } = this.host;
    for (const { item: pull } of pulls) {
      meter.pull.waited(meter.at - pull.at);
      this.reject(pull.client, pull.id, pull.item, code);
    }
  }
}
