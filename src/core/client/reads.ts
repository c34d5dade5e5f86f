/**
 * The requests of a client that change nothing: pulls, and questions to owners or nodes. They are idempotent:
 * whatever is not answered is simply asked again, at whoever is the owner by then.
 */
import type { ErrorCode } from '../../errors.js';
import type { ClusterMap, PeerId } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { Retry } from '../shared/retry.js';
import type { ClientEffect, ClientPolicy, Query, ShardSection } from './requests.js';

/** A read is repeated after so many times `retryMs`: its answer costs more than an acknowledgement. */
const READ_RETRIES = 4;

interface Ticket {
  left: number;
  items: (ShardSection & { done: boolean; readonly retry: Retry })[];
  query: Query | undefined;
  readonly queryRetry: Retry;
  messages: number[];
}

/** What the client lends to its reads. */
export interface ReadsHost {
  readonly map: ClusterMap;
  readonly now: number;
  ownerOf(g: number, m: number): PeerId;
  /** A shard has answered. */
  served(g: number, m: number): void;
  /** Answers are overdue. */
  askForMap(): void;
  emit(effect: ClientEffect): void;
}

export class Reads {
  private readonly tickets = new Map<number, Ticket>();
  /** Message id -> the items of a ticket that it asked for. */
  private readonly requests = new Map<number, { ticket: number; items: number[] }>();
  private nextMessage = 1;

  constructor(
    private readonly host: ReadsHost,
    private readonly policy: ClientPolicy,
  ) {}

  pull(id: number, items: readonly ShardSection[]): void {
    this.start(id, items, undefined);
    this.sendPulls(id, () => true);
  }

  query(id: number, query: Query): void {
    this.start(id, [], query);
    this.sendQuery(id);
  }

  forget(id: number): void {
    for (const message of this.tickets.get(id)?.messages ?? []) this.requests.delete(message);
    this.tickets.delete(id);
  }

  /** Asks again: all questions, and of the pulls what goes to these shards. */
  again(concerned: (g: number, m: number) => boolean): void {
    for (const [id, { query }] of this.tickets) {
      if (query) this.sendQuery(id);
      else this.sendPulls(id, (item) => concerned(item.g, item.m));
    }
  }

  tick(now: number): void {
    const overdue = ({ retry }: { retry: Retry }) => retry.overdue(now);
    for (const [id, { items, query, queryRetry }] of this.tickets) {
      if (!query) {
        if (!items.some((item) => !item.done && overdue(item))) continue;
        this.sendPulls(id, overdue);
      } else if (!queryRetry.overdue(now)) continue;
      else this.sendQuery(id);
      this.host.askForMap();
    }
  }

  private start(id: number, items: readonly ShardSection[], query: Query | undefined): void {
    this.tickets.set(id, {
      left: items.length,
      items: items.map((item) => ({ ...item, done: false, retry: this.newRetry() })),
      query,
      queryRetry: this.newRetry(),
      messages: [],
    });
  }

  private newRetry(): Retry {
    return new Retry({ waitMs: this.policy.retryMs * READ_RETRIES });
  }

  private sendPulls(id: number, which: (item: Ticket['items'][number]) => boolean): void {
    const ticket = this.tickets.get(id);
    if (!ticket) return;
    if (ticket.items.length === 0) this.complete(id);
    const byNode = new Map<PeerId, number[]>();
    for (const [index, item] of ticket.items.entries()) {
      if (item.done || !which(item)) continue;
      item.retry.asked(this.host.now);
      const node = this.host.ownerOf(item.g, item.m);
      if (node === 0) continue;
      byNode.set(node, [...(byNode.get(node) ?? []), index]);
    }
    for (const [node, indexes] of byNode) {
      const message = this.newMessage(id, indexes);
      const items = indexes.map((index): [number, number] => [
        ticket.items[index]!.g,
        ticket.items[index]!.m,
      ]);
      const parts = indexes.map((index) => ticket.items[index]!.section);
      this.host.emit({
        kind: 'send',
        to: node,
        message: { t: 'pull', epoch: this.host.map.epoch, id: message, items },
        parts,
      });
    }
  }

  private newMessage(ticket: number, items: number[]): number {
    const id = this.nextMessage++;
    this.requests.set(id, { ticket, items });
    this.tickets.get(ticket)?.messages.push(id);
    return id;
  }

  private sendQuery(id: number): void {
    const ticket = this.tickets.get(id);
    if (!ticket?.query) return;
    const { to, message } = ticket.query;
    ticket.queryRetry.asked(this.host.now);
    const node = 'node' in to ? to.node : this.host.ownerOf(to.g, to.m);
    if (node === 0) return;
    const number = this.newMessage(id, [0]);
    this.host.emit({
      kind: 'send',
      to: node,
      message: { ...message, epoch: this.host.map.epoch, id: number },
      parts: [],
    });
  }

  onRows(message: MessageOf<'rows'>, parts: readonly Uint8Array[]): void {
    const request = this.requests.get(message.id);
    const ticket = request && this.tickets.get(request.ticket);
    if (!request || !ticket) return;
    for (const [position, index] of message.items.entries()) {
      const itemIndex = request.items[index];
      const item = itemIndex === undefined ? undefined : ticket.items[itemIndex];
      const rows = parts[position];
      if (!item || item.done || itemIndex === undefined || !rows) continue;
      item.done = true;
      this.host.served(item.g, item.m);
      this.host.emit({ kind: 'rows', ticket: request.ticket, item: itemIndex, rows });
      if (--ticket.left === 0) this.complete(request.ticket);
    }
  }

  onReject(message: MessageOf<'reject'>): void {
    const request = this.requests.get(message.id);
    const ticket = request && this.tickets.get(request.ticket);
    if (!request || !ticket) return;
    for (const [index, code] of message.items) {
      const item = ticket.items[request.items[index] ?? 0];
      if (code === 'WRONG_OWNER') {
        (item?.retry ?? ticket.queryRetry).askAgainIn(this.policy.wrongOwnerMs, this.host.now);
      } else {
        const where = item ? ` at shard ${item.g}/${item.m}` : '';
        this.fail(request.ticket, code, `the request was rejected${where}: ${code}`);
        return;
      }
    }
  }

  onAnswer(message: Message & { id: number }, parts: readonly Uint8Array[]): void {
    const request = this.requests.get(message.id);
    if (!request || !this.tickets.has(request.ticket)) return;
    this.host.emit({ kind: 'answer', ticket: request.ticket, message, parts });
    this.complete(request.ticket);
  }

  private complete(id: number): void {
    this.forget(id);
    this.host.emit({ kind: 'done', ticket: id });
  }

  private fail(id: number, code: ErrorCode, message: string): void {
    this.forget(id);
    this.host.emit({ kind: 'done', ticket: id, error: { code, message } });
  }
}
