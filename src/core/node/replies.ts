/**
 * Answers of a node to clients, collected over a step: one message of acknowledgements for each client, one
 * of rows for each pull. Pushes under a range's session are answered to the worker that pushed for it last.
 */
import { ItemList } from '../../protocol/items.js';
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf, Refusal } from '../../protocol/messages.js';
import { joined } from '../shared/bytes.js';
import type { Meter } from '../shared/meter.js';
import type { Outbox } from '../shared/outbox.js';
import { OwedAcks } from './owed-acks.js';

/** Beyond this number the oldest routes are forgotten. A worker that gets no answer pushes again. */
const MAX_ROUTES = 4096;

export type PushReply = MessageOf<'pushAck'> | MessageOf<'gap'> | MessageOf<'lost'>;

/** Rows of one pull that are sent together. */
interface PullAnswer {
  client: PeerId;
  id: number;
  items: ItemList;
  rows: Uint8Array[];
  bytes: number;
}

/** Acknowledgements to one client. */
interface Acks {
  items: ItemList;
  refused: [index: number, code: Refusal][];
}

export class Replies {
  /** Acknowledgements of this step, by client; empty between steps. */
  private readonly acks = new Map<PeerId, Acks>();
  /** Rows of this step, by client and pull; empty between steps. */
  private readonly answers = new Map<string, PullAnswer>();
  /** Session of a range of samples -> worker that pushed for it last; oldest first. */
  private readonly routes = new Map<PeerId, PeerId>();
  readonly owed: OwedAcks;

  constructor(
    private readonly out: Outbox,
    private readonly meter: Meter,
    private readonly maxRowsBytes: number,
    /** Takes bytes that nobody refers to any more. */
    private readonly discard: (bytes: Uint8Array) => void = () => {},
    /** Longest time that an acknowledgement waits for others of its push. */
    ackWaitMs = 0,
  ) {
    this.owed = new OwedAcks(ackWaitMs, (...ack) => this.acknowledge(...ack));
  }

  route(client: PeerId, worker: PeerId): void {
    this.routes.delete(client);
    this.routes.set(client, worker);
    if (this.routes.size <= MAX_ROUTES) return;
    for (const oldest of this.routes.keys()) {
      this.routes.delete(oldest);
      return;
    }
  }

  tell(client: PeerId, message: PushReply): void {
    const worker = this.routes.get(client);
    if (worker === undefined) this.out.send(client, message);
    else this.out.send(worker, { ...message, client });
  }

  acknowledge(client: PeerId, g: number, m: number, cseq: number, refused?: Refusal): void {
    let acks = this.acks.get(client);
    if (!acks) {
      acks = { items: new ItemList('pushAck'), refused: [] };
      this.acks.set(client, acks);
    }
    if (refused !== undefined) {
      this.meter.push.fails(refused);
      acks.refused.push([acks.items.length, refused]);
    }
    acks.items.addNumbered(g, m, cseq);
  }

  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void {
    const key = `${client}/${id}`;
    let answer = this.answers.get(key);
    if (!answer) {
      answer = { client, id, items: new ItemList('rows'), rows: [], bytes: 0 };
      this.answers.set(key, answer);
    }
    answer.items.add(item, rows.byteLength);
    answer.rows.push(rows);
    answer.bytes += rows.byteLength;
    // A frame has a limit; the client takes any number of answers to a pull.
    if (answer.bytes <= this.maxRowsBytes) return;
    this.answers.delete(key);
    this.sendRows(answer);
  }

  answerAlone(client: PeerId, id: number, item: number, rows: Uint8Array): void {
    const items = new ItemList('rows');
    items.add(item, rows.byteLength);
    this.out.send(client, { t: 'rows', id, items: items.bytes() }, [rows]);
  }

  private sendRows({ client, id, items, rows }: PullAnswer): void {
    const all = joined(rows.map((memory) => ({ memory, start: 0, size: memory.byteLength })));
    // Rows that were not in one buffer have been copied by `joined`, so their memory is free.
    for (const each of rows) if (each.buffer !== all.buffer) this.discard(each);
    this.out.send(client, { t: 'rows', id, items: items.bytes() }, [all]);
  }

  /** Called at the end of a step. */
  send(): void {
    for (const [client, { items, refused }] of this.acks) {
      const message = { t: 'pushAck' as const, items: items.bytes() };
      this.tell(client, refused.length > 0 ? { ...message, refused } : message);
    }
    this.acks.clear();
    for (const answer of this.answers.values()) this.sendRows(answer);
    this.answers.clear();
  }
}
