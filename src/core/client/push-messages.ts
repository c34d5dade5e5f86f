/**
 * How a client's pushes go out: one message per node and session, whatever the number of shards and tables.
 */
import { ItemList } from '../../protocol/items.js';
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { joined, type Span } from '../shared/bytes.js';
import type { PendingPush, ShardState } from './state.js';

/** Most bytes and sections of one message, well below the limits of a frame. Further messages follow. */
const MAX_PUSH_BYTES = 8 << 20;
const MAX_PUSH_ITEMS = 65_536;

interface NumberedSections {
  readonly node: PeerId;
  readonly client: PeerId | undefined;
  readonly items: ItemList;
  readonly spans: Span[];
  bytes: number;
}

/** Pushes that go out together, in the order in which they are added. */
export class PushMessages {
  private readonly all: NumberedSections[] = [];
  private readonly open = new Map<string, NumberedSections>();
  private last: NumberedSections | undefined;

  /** Adds a push to the message for its node. Pushes that would not fit one frame go in several. */
  add(node: PeerId, { g, m, client }: ShardState, push: PendingPush): void {
    let { last } = this;
    if (!last || last.node !== node || last.client !== client) last = this.open.get(`${node}/${client}`);
    if (!last || last.bytes + push.size > MAX_PUSH_BYTES || last.items.length >= MAX_PUSH_ITEMS) {
      last = { node, client, items: new ItemList('push'), spans: [], bytes: 0 };
      this.open.set(`${node}/${client}`, last);
      this.all.push(last);
    }
    this.last = last;
    last.items.addNumbered(g, m, push.cseq, push.size);
    last.spans.push(push);
    last.bytes += push.size;
  }

  messages(epoch: number): { node: PeerId; message: MessageOf<'push'>; parts: Uint8Array[] }[] {
    return this.all.map(({ node, client, items, spans }) => {
      const whose = client === undefined ? {} : { client };
      const message = { t: 'push' as const, epoch, ...whose, items: items.bytes() };
      return { node, message, parts: [joined(spans)] };
    });
  }
}
