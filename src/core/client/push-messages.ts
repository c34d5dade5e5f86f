/**
 * How a client's pushes go out: one message per node and session, whatever the number of shards and tables.
 */
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { PendingPush, ShardState } from './requests.js';

/** Most bytes and sections of one message, well below the limit of a frame. Further messages follow. */
const MAX_PUSH_BYTES = 32 << 20;
const MAX_PUSH_ITEMS = 4096;

interface PushMessage {
  node: PeerId;
  message: MessageOf<'push'>;
  parts: Uint8Array[];
  bytes: number;
}

/** Numbers count per shard and session. `client`: the session, when it is not this client's own. */
export function shardKey(g: number, m: number, client: PeerId | undefined): string {
  return client === undefined ? `${g}/${m}` : `${g}/${m}/${client}`;
}

/** In the order of the pushes; those that would not fit one frame go in several. */
export function pushMessages(
  epoch: number,
  pushes: readonly { node: PeerId; shard: ShardState; push: PendingPush }[],
): PushMessage[] {
  const all: PushMessage[] = [];
  const open = new Map<string, PushMessage>();
  for (const { node, shard, push } of pushes) {
    const { g, m, client } = shard;
    const key = `${node}/${client}`;
    let last = open.get(key);
    const full =
      last !== undefined &&
      (last.bytes + push.section.byteLength > MAX_PUSH_BYTES || last.parts.length >= MAX_PUSH_ITEMS);
    if (!last || full) {
      const whose = client === undefined ? {} : { client };
      last = { node, message: { t: 'push', epoch, ...whose, items: [] }, parts: [], bytes: 0 };
      open.set(key, last);
      all.push(last);
    }
    last.message.items.push([g, m, push.cseq]);
    last.parts.push(push.section);
    last.bytes += push.section.byteLength;
  }
  return all;
}
