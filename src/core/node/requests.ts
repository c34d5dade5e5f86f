/** Requests of clients. Each section of a push or pull goes to the owner that it is for. */
import { KintsugiError } from '../../common/errors.js';
import { Items } from '../../protocol/items.js';
import { lastTableOf, type PeerId } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { answerBytes } from '../../protocol/section-header.js';
import type { RowsBuffer } from '../shard/host.js';
import { rowsIn, type Work } from '../shared/turn.js';
import type { NodeHost } from './host.js';
import type { Owners } from './owners.js';
import { sectionsOf } from './payload.js';
import { type Queries, workOfKeys } from './queries.js';

/** A message of a client that is served in its turn. */
export type Request = MessageOf<'push'> | MessageOf<'pull'> | MessageOf<'skipTo'> | MessageOf<'keys'>;

const REQUESTS: ReadonlySet<Message['t']> = new Set<Request['t']>(['push', 'pull', 'skipTo', 'keys']);

export function isRequest(message: Message): message is Request {
  return REQUESTS.has(message.t);
}

/** Bytes of the header of a request that waits; they grow with the number of its sections. */
export function headerBytesOf(message: Message): number {
  return message.t === 'push' || message.t === 'pull' ? message.items.byteLength : 0;
}

const NOTHING: Work = { rows: 0, bytes: 0 };

export class NodeRequests {
  constructor(
    private readonly host: NodeHost,
    private readonly owners: Owners,
    private readonly queries: Queries,
    /** True if `proof` is that of the session, which is a range's. */
    private readonly holds: (session: PeerId, proof: Uint8Array | undefined) => boolean,
  ) {}

  /** A client pushes under its own session, and under those of ranges leased to it. @throws FORBIDDEN */
  check(from: PeerId, message: Request): void {
    if (message.t === 'pull' || message.t === 'keys') return;
    const { client = from, proof } = message;
    if (client !== from && !this.holds(client, proof))
      throw new KintsugiError('FORBIDDEN', `client ${from} may not push as client ${client}`);
  }

  /** The cost of a request that is not served yet. @throws BAD_FRAME */
  workOf(message: Request, parts: readonly Uint8Array[]): Work {
    if (message.t === 'skipTo') return NOTHING;
    if (message.t === 'keys') return workOfKeys(message);
    const isPush = message.t === 'push';
    const items = new Items(message.t, message.items);
    const size = isPush ? 4 : 2;
    const sections = sectionsOf(items, size, parts);
    const [view, tables] = [viewOf(sections), lastTableOf(this.host.map)];
    const work = { rows: 0, bytes: 0 };
    let start = 0;
    for (let i = 0; i < items.length; i++) {
      const end = start + items.word(i, size);
      work.rows += rowsIn(view, start, end);
      work.bytes += isPush ? end - start : answerBytes(view, start, end, tables);
      start = end;
    }
    return work;
  }

  /**
   * Serves a request that has passed `check` and that came at `at`. `buffer`: as in `onPull`.
   * @throws BAD_FRAME
   */
  serve(from: PeerId, message: Request, parts: readonly Uint8Array[], at: number, buffer?: RowsBuffer): void {
    if (message.t === 'push') this.onPush(from, message, parts);
    else if (message.t === 'pull') this.onPull(from, message, parts, at, buffer);
    else if (message.t === 'skipTo') this.onSkipTo(from, message);
    else this.onKeys(from, message);
  }

  private onKeys(from: PeerId, message: MessageOf<'keys'>): void {
    this.host.turn.request();
    this.host.turn.spend(workOfKeys(message));
    this.queries.onKeys(from, message);
  }

  private onPush(from: PeerId, message: MessageOf<'push'>, parts: readonly Uint8Array[]): void {
    const { client = from } = message;
    this.host.pace.request();
    const items = new Items('push', message.items);
    const sections = sectionsOf(items, 4, parts);
    const { turn, replies, now } = this.host;
    if (client !== from) replies.route(client, from);
    turn.request();
    const owed = items.length > 1 ? replies.owed.begin(client, now) : undefined;
    const { push } = this.host.meter;
    const [view, tables] = [viewOf(sections), lastTableOf(this.host.map)];
    // A push to a shard that is not ours is not answered: the client sends it again when the map tells it
    // where.
    let start = 0;
    for (let i = 0; i < items.length; i++) {
      const end = start + items.word(i, 4);
      const [g, m, cseq] = [items.word(i, 0), items.word(i, 1), items.number(i, 2)];
      const owner = this.owners.at(g, m);
      if (owner) {
        push.arrived();
        if (owed) replies.owed.add(owed, g, m, cseq);
        turn.spend({ rows: push.read(view, start, end, tables), bytes: end - start });
        owner.onPush(client, cseq, sections.subarray(start, end));
      }
      start = end;
    }
  }

  private onSkipTo(from: PeerId, { client = from, g, m, next }: MessageOf<'skipTo'>): void {
    this.owners.at(g, m)?.onSkipTo(client, next);
  }

  /** `buffer`: where the rows of all sections go, one after the other, as they do in the answer. */
  private onPull(
    from: PeerId,
    message: MessageOf<'pull'>,
    parts: readonly Uint8Array[],
    at: number,
    buffer: RowsBuffer | undefined,
  ): void {
    this.host.pace.request();
    const items = new Items('pull', message.items);
    const sections = sectionsOf(items, 2, parts);
    const { now, meter } = this.host;
    const { pull } = meter;
    const [view, tables] = [viewOf(sections), lastTableOf(this.host.map)];
    const elsewhere: MessageOf<'reject'>['items'] = [];
    let start = 0;
    for (let i = 0; i < items.length; i++) {
      const end = start + items.word(i, 2);
      const owner = this.owners.at(items.word(i, 0), items.word(i, 1));
      pull.arrived();
      if (owner) {
        const rows = pull.read(view, start, end, tables);
        const bytes = answerBytes(view, start, end, tables);
        const { id, first = id } = message;
        const asked = { client: from, id, first, item: i, rows, bytes, at, since: now };
        owner.onPull(asked, sections.subarray(start, end), buffer);
      } else {
        pull.fails('WRONG_OWNER');
        elsewhere.push([i, 'WRONG_OWNER']);
      }
      start = end;
    }
    if (elsewhere.length > 0) this.host.out.send(from, { t: 'reject', id: message.id, items: elsewhere });
  }
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}
