/** Pushes and pulls: each section of a request goes to the owner that it is for. */
import { KintsugiError } from '../../common/errors.js';
import { Items } from '../../protocol/items.js';
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { answerBytes } from '../../protocol/section-header.js';
import type { RowsBuffer } from '../shard/host.js';
import type { NodeHost } from './host.js';
import type { Owners } from './owners.js';
import { sectionsOf } from './payload.js';

export class NodeRequests {
  constructor(
    private readonly host: NodeHost,
    private readonly owners: Owners,
    /** True if `proof` is that of the session, which is a range's. */
    private readonly holds: (session: PeerId, proof: Uint8Array | undefined) => boolean,
  ) {}

  onPush(from: PeerId, message: MessageOf<'push'>, parts: readonly Uint8Array[]): void {
    const { client = from } = message;
    // A client pushes under its own session, and under those of ranges that were leased to it.
    if (client !== from && !this.holds(client, message.proof))
      throw new KintsugiError('FORBIDDEN', `client ${from} may not push as client ${client}`);
    this.host.pace.request();
    const items = new Items('push', message.items);
    const sections = sectionsOf(items, 4, parts);
    if (client !== from) this.host.replies.route(client, from);
    const { push } = this.host.meter;
    const [view, tables] = [viewOf(sections), this.host.map.tables.length];
    // A push to a shard that is not ours is not answered: the client sends it again when the map tells it
    // where.
    let start = 0;
    for (let i = 0; i < items.length; i++) {
      const end = start + items.word(i, 4);
      const owner = this.owners.at(items.word(i, 0), items.word(i, 1));
      if (owner) {
        push.arrived();
        push.read(view, start, end, tables);
        owner.onPush(client, items.number(i, 2), sections.subarray(start, end));
      }
      start = end;
    }
  }

  onSkipTo(from: PeerId, { client = from, proof, g, m, next }: MessageOf<'skipTo'>): void {
    if (client !== from && !this.holds(client, proof))
      throw new KintsugiError('FORBIDDEN', `client ${from} may not push as client ${client}`);
    this.owners.at(g, m)?.onSkipTo(client, next);
  }

  /** `buffer`: where the rows of all sections go, one after the other, as they do in the answer. */
  onPull(
    from: PeerId,
    message: MessageOf<'pull'>,
    parts: readonly Uint8Array[],
    buffer: RowsBuffer | undefined,
  ): void {
    this.host.pace.request();
    const items = new Items('pull', message.items);
    const sections = sectionsOf(items, 2, parts);
    const { now, meter } = this.host;
    const { pull } = meter;
    const [view, tables] = [viewOf(sections), this.host.map.tables.length];
    const elsewhere: MessageOf<'reject'>['items'] = [];
    let start = 0;
    for (let i = 0; i < items.length; i++) {
      const end = start + items.word(i, 2);
      const owner = this.owners.at(items.word(i, 0), items.word(i, 1));
      pull.arrived();
      if (owner) {
        pull.read(view, start, end, tables);
        const bytes = answerBytes(view, start, end, tables);
        const asked = { client: from, id: message.id, item: i, bytes, at: meter.at, since: now };
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
