/**
 * Clients that wait: each has a line of what it asked for, in the order in which it asked, and the lines are
 * in a fair order (fair-order.ts).
 */
import type { PeerId } from '../../protocol/map.js';
import { FairOrder } from './fair-order.js';
import { type BytesAccount, type WaitingEntry, WaitingList } from './waiting-list.js';

export interface FairLine<T> {
  readonly client: PeerId;
  /** Empty only while the line is being changed. */
  readonly list: WaitingList<T>;
  tag: number;
}

export class FairLines<T> {
  /** The line of each client that waits, by the time since which it does. Changed here only. */
  readonly byClient = new Map<PeerId, FairLine<T>>();
  /** All lines, but for those that its user takes out for a while. */
  readonly order = new FairOrder<FairLine<T>>();

  constructor(
    /** Limits of each line, and the account of all. */
    private readonly options: { readonly maxCount: number; readonly account: BytesAccount },
    /** The cost of an item in the order. */
    private readonly costOf: (item: T) => number,
  ) {}

  get any(): boolean {
    return this.byClient.size > 0;
  }

  /** False: there is no room. See `WaitingList.add`. */
  add(client: PeerId, item: T, parts: readonly Uint8Array[], since: number, beside = 0): boolean {
    const known = this.byClient.get(client);
    const list = known?.list ?? new WaitingList<T>({ ...this.options, atLimit: 'refuse' });
    if (!list.add(item, parts, since, beside)) return false;
    if (known) return true;
    const line = { client, list, tag: 0 };
    this.byClient.set(client, line);
    this.order.enter(line, this.costOf(item));
    return true;
  }

  /** Takes the first item of a line out: it is being served. */
  serve(line: FairLine<T>): WaitingEntry<T> {
    const entry = line.list.shift()!;
    const next = line.list.first;
    this.order.served(line, next && this.costOf(next.item));
    if (!next) this.byClient.delete(line.client);
    return entry;
  }

  /** The first item of a line has got a part of what it waits for, and what it costs now is the rest. */
  served(line: FairLine<T>): void {
    this.order.served(line, this.costOf(line.list.first!.item));
  }

  /** Forgets a line from which items were dropped, if it has none left. */
  dropEmpty(line: FairLine<T>): void {
    if (line.list.length > 0) return;
    this.byClient.delete(line.client);
    this.order.leave(line);
  }

  /** Drops all that a client waits for, and returns it. */
  drop(client: PeerId): WaitingEntry<T>[] {
    const line = this.byClient.get(client);
    const dropped = line?.list.takeAll() ?? [];
    if (line) this.dropEmpty(line);
    return dropped;
  }
}
