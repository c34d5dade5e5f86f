/** Pushes and pulls: each section of a request goes to the owner that it is for. */
import { KintsugiError } from '../../errors.js';
import { Items } from '../../protocol/items.js';
import type { ClusterMap, PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import type { Meter } from '../shared/meter.js';
import type { Outbox } from '../shared/outbox.js';
import type { Pace } from '../shared/pace.js';
import type { Replies } from './replies.js';
import { sectionsOf } from './sections.js';

/** Where the owners are. */
export interface RequestsHost {
  readonly out: Outbox;
  readonly pace: Pace;
  readonly meter: Meter;
  readonly map: ClusterMap;
  ownerAt(g: number, m: number): Owner | undefined;
}

export class Requests {
  constructor(
    private readonly host: RequestsHost,
    private readonly replies: Replies,
    /** `proof` is that of the session of a range. */
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
    if (client !== from) this.replies.route(client, from);
    const { push } = this.host.meter;
    const [view, tables] = [viewOf(sections), this.host.map.tables.length];
    // A push to a shard that is not ours is not answered: the client sends it again when the map tells it
    // where.
    let start = 0;
    for (let i = 0; i < items.length; i++) {
      const end = start + items.word(i, 4);
      const owner = this.host.ownerAt(items.word(i, 0), items.word(i, 1));
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
    this.host.ownerAt(g, m)?.onSkipTo(client, next);
  }

  onPull(from: PeerId, message: MessageOf<'pull'>, parts: readonly Uint8Array[]): void {
    this.host.pace.request();
    const items = new Items('pull', message.items);
    const sections = sectionsOf(items, 2, parts);
    const { pull } = this.host.meter;
    const [view, tables] = [viewOf(sections), this.host.map.tables.length];
    const elsewhere: MessageOf<'reject'>['items'] = [];
    let start = 0;
    for (let i = 0; i < items.length; i++) {
      const end = start + items.word(i, 2);
      const owner = this.host.ownerAt(items.word(i, 0), items.word(i, 1));
      pull.arrived();
      if (owner) {
        pull.read(view, start, end, tables);
        owner.onPull(from, message.id, i, sections.subarray(start, end));
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
