/**
 * What a node answers to clients, collected over a step: one message of acknowledgements per client, one of
 * rows per pull. Pushes under a range's session are answered to the worker that pushed for it last.
 */
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf, Refusal } from '../../protocol/messages.js';
import type { Outbox } from '../shared/outbox.js';

/** Beyond this the oldest routes are forgotten. A worker that gets no answer pushes again. */
const MAX_ROUTES = 4096;

export type PushReply = MessageOf<'pushAck'> | MessageOf<'gap'> | MessageOf<'lost'>;

/** Rows of one pull that are sent together. */
interface Answer {
  client: PeerId;
  id: number;
  items: number[];
  rows: Uint8Array[];
  bytes: number;
}

export class Replies {
  private readonly acks = new Map<PeerId, MessageOf<'pushAck'>['items']>();
  private readonly answers = new Map<string, Answer>();
  /** Session of a range of samples -> worker that pushed for it last; oldest first. */
  private readonly routes = new Map<PeerId, PeerId>();

  constructor(
    private readonly out: Outbox,
    private readonly maxRowsBytes: number,
  ) {}

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
    let items = this.acks.get(client);
    if (!items) {
      items = [];
      this.acks.set(client, items);
    }
    items.push(refused === undefined ? [g, m, cseq] : [g, m, cseq, refused]);
  }

  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void {
    const key = `${client}/${id}`;
    let answer = this.answers.get(key);
    if (!answer) {
      answer = { client, id, items: [], rows: [], bytes: 0 };
      this.answers.set(key, answer);
    }
    answer.items.push(item);
    answer.rows.push(rows);
    answer.bytes += rows.byteLength;
    // A frame has a limit; the client takes any number of answers to a pull.
    if (answer.bytes <= this.maxRowsBytes) return;
    this.answers.delete(key);
    this.out.send(client, { t: 'rows', id, items: answer.items }, answer.rows);
  }

  /** At the end of a step. */
  send(): void {
    for (const [client, items] of this.acks) this.tell(client, { t: 'pushAck', items });
    this.acks.clear();
    for (const { client, id, items, rows } of this.answers.values())
      this.out.send(client, { t: 'rows', id, items }, rows);
    this.answers.clear();
  }
}
