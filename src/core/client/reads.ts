/**
 * The requests of a client that change nothing: pulls, and questions to owners or nodes. They are idempotent:
 * whatever is not answered is simply asked again, at whoever is the owner by then.
 */
import { type ErrorCode, KintsugiError } from '../../common/errors.js';
import { ItemList, Items } from '../../protocol/items.js';
import { limitText } from '../../protocol/limits.js';
import type { ClusterMap, PeerId } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { joined, type Span, words } from '../shared/bytes.js';
import { Retry } from '../shared/retry.js';
import {
  type Busy,
  type ClientEffect,
  type ClientPolicy,
  PLACE_WORDS,
  type Query,
  type SectionList,
} from './state.js';

/** A read is repeated after so many times `retryMs`: its answer costs more than an acknowledgement. */
const READ_RETRIES = 4;

/**
 * How many rounds of messages are remembered for each ticket. An answer to a message of an older round is
 * ignored.
 */
const MAX_ROUNDS = 32;

/** A section of a pull. */
interface ReadItem extends Span {
  readonly g: number;
  readonly m: number;
  done: boolean;
  /** When it is asked for again. */
  overdueAt: number;
  /** The newest question was answered, without rows: nothing of it is on the way. */
  rejected: boolean;
}

interface Ticket {
  left: number;
  items: ReadItem[];
  query: Query | undefined;
  readonly queryRetry: Retry;
  /** As of an item. */
  queryRejected: boolean;
  /** Id of the first message of a pull. */
  first: number | undefined;
  /** Ids of the messages that are not answered. */
  readonly messages: Set<number>;
  /** The most that were sent at once. */
  width: number;
}

/** The parts of the client that its reads use. */
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

  pull(id: number, lists: readonly SectionList[]): void {
    this.start(id, itemsOf(lists), undefined);
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

  tick(now: number, busy: Busy): void {
    const { maxBusyMs } = this.policy;
    const isOnTheWay = (node: PeerId) => busy.sending.has(node) || busy.receiving.has(node);
    const overdue = ({ g, m, overdueAt, rejected }: ReadItem) =>
      now > overdueAt && (rejected || now > overdueAt + maxBusyMs || !isOnTheWay(this.host.ownerOf(g, m)));
    for (const [id, { items, query, queryRetry, queryRejected }] of this.tickets) {
      if (!query) {
        if (!items.some((item) => !item.done && overdue(item))) continue;
        this.sendPulls(id, overdue);
      } else if (!queryRetry.overdue(now)) continue;
      else if (queryRejected || !isOnTheWay(this.nodeOf(query)) || queryRetry.overdue(now - maxBusyMs))
        this.sendQuery(id);
      else continue;
      this.host.askForMap();
    }
  }

  private nodeOf({ to }: Query): PeerId {
    return 'node' in to ? to.node : this.host.ownerOf(to.g, to.m);
  }

  private start(id: number, items: ReadItem[], query: Query | undefined): void {
    this.tickets.set(id, {
      left: items.length,
      items,
      query,
      queryRetry: new Retry({ waitMs: this.waitMs }),
      queryRejected: false,
      first: undefined,
      messages: new Set(),
      width: 1,
    });
  }

  private get waitMs(): number {
    return this.policy.retryMs * READ_RETRIES;
  }

  private sendPulls(id: number, which: (item: ReadItem) => boolean): void {
    const ticket = this.tickets.get(id);
    if (!ticket) return;
    if (ticket.items.length === 0) this.complete(id);
    const overdueAt = this.host.now + this.waitMs;
    const byNode = new Map<PeerId, { indexes: number[]; items: ItemList; spans: Span[] }>();
    for (const [index, item] of ticket.items.entries()) {
      if (item.done || !which(item)) continue;
      item.overdueAt = overdueAt;
      item.rejected = false;
      const node = this.host.ownerOf(item.g, item.m);
      if (node === 0) continue;
      let asked = byNode.get(node);
      if (!asked) {
        asked = { indexes: [], items: new ItemList('pull'), spans: [] };
        byNode.set(node, asked);
      }
      asked.indexes.push(index);
      asked.items.add(item.g, item.m, item.size);
      asked.spans.push(item);
    }
    ticket.width = Math.max(ticket.width, byNode.size);
    for (const [to, { indexes, items, spans }] of byNode) {
      const number = this.newMessage(id, indexes);
      const { first = number } = ticket;
      ticket.first = first;
      const message: MessageOf<'pull'> = {
        t: 'pull',
        epoch: this.host.map.epoch,
        id: number,
        ...(first !== number && { first }),
        items: items.bytes(),
      };
      this.host.emit({ kind: 'send', to, message, parts: [joined(spans)] });
    }
  }

  private newMessage(ticket: number, items: number[]): number {
    const id = this.nextMessage++;
    this.requests.set(id, { ticket, items });
    const { messages, width } = this.tickets.get(ticket)!;
    messages.add(id);
    if (messages.size > width * MAX_ROUNDS) this.forgetMessage(messages.values().next().value!);
    return id;
  }

  private forgetMessage(id: number): void {
    const request = this.requests.get(id);
    if (request) this.tickets.get(request.ticket)?.messages.delete(id);
    this.requests.delete(id);
  }

  /** Messages whose answers are waited for. */
  get unanswered(): number {
    return this.requests.size;
  }

  private sendQuery(id: number): void {
    const ticket = this.tickets.get(id);
    if (!ticket?.query) return;
    const { message } = ticket.query;
    ticket.queryRetry.asked(this.host.now);
    ticket.queryRejected = false;
    const node = this.nodeOf(ticket.query);
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
    const items = new Items('rows', message.items);
    const [body] = parts;
    if (!body || parts.length > 1)
      throw new KintsugiError('BAD_FRAME', `rows come in one part, not in ${parts.length}`);
    items.checkSizes(1, body.byteLength);
    const fresh = new ItemList('rows');
    const spans: Span[] = [];
    let start = 0;
    for (let i = 0; i < items.length; i++) {
      const span = { memory: body, start, size: items.word(i, 1) };
      start += span.size;
      const index = request.items[items.word(i, 0)];
      const item = index === undefined ? undefined : ticket.items[index];
      if (!item || item.done || index === undefined) continue;
      item.done = true;
      ticket.left--;
      this.host.served(item.g, item.m);
      fresh.add(index, span.size);
      spans.push(span);
    }
    if (fresh.length === 0) return;
    const all = { items: words(fresh.bytes()), rows: joined(spans) };
    this.host.emit({ kind: 'rows', ticket: request.ticket, ...all });
    if (ticket.left === 0) this.complete(request.ticket);
  }

  onReject(message: MessageOf<'reject'>): void {
    const request = this.requests.get(message.id);
    const ticket = request && this.tickets.get(request.ticket);
    if (!request || !ticket) return;
    for (const [index, code] of message.items) {
      const item = ticket.items[request.items[index] ?? 0];
      if (code === 'WRONG_OWNER') {
        const { now } = this.host;
        if (item) {
          item.overdueAt = now + this.policy.wrongOwnerMs;
          item.rejected = true;
        } else {
          ticket.queryRetry.askAgainIn(this.policy.wrongOwnerMs, now);
          ticket.queryRejected = true;
        }
      } else {
        const where = item ? ` at shard ${item.g}/${item.m}` : '';
        this.fail(request.ticket, code, `the request was rejected${where}: ${rejection(code)}`);
        return;
      }
    }
    // The rest of a pull may be answered much later, when this has been asked again many times.
    const all = message.items.length >= request.items.length;
    if (all && !ticket.query) this.forgetMessage(message.id);
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

function itemsOf(lists: readonly SectionList[]): ReadItem[] {
  const items: ReadItem[] = [];
  for (const { places, bytes: memory } of lists) {
    let start = 0;
    for (let i = 0; i < places.length; i += PLACE_WORDS) {
      const [g, m, size] = [places[i]!, places[i + 1]!, places[i + 2]!];
      items.push({
        g,
        m,
        memory,
        start,
        size,
        done: false,
        overdueAt: Number.NEGATIVE_INFINITY,
        rejected: false,
      });
      start += size;
    }
  }
  return items;
}

/** The code of a rejected request; LIMIT with the limits that a PS has for pulls. */
function rejection(code: ErrorCode): string {
  if (code !== 'LIMIT') return code;
  const rows = limitText('too many rows', 'maxRowsBytes');
  return `${code}: ${rows}, or ${limitText('too many requests wait', 'maxParked')}`;
}
