/**
 * Answers questions of tools to owners and sinks (keys, evictions, statistics, checks of parities), and hands
 * questions of replicas to owners.
 */
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import { bytes } from '../shared/bytes.js';
import { takingForeign } from '../shared/engine.js';
import type { Work } from '../shared/turn.js';
import type { NodeHost } from './host.js';
import type { Owners } from './owners.js';
import type { Sinks } from './sinks.js';

const MAX_KEYS_PER_PAGE = 65_536;
const KEY_BYTES = 8;
const MAX_EVICTED_PER_PAGE = 16_384;

/** The most that a page of keys may cost. */
export function workOfKeys({ max }: MessageOf<'keys'>): Work {
  const rows = Math.min(max, MAX_KEYS_PER_PAGE);
  return { rows, bytes: rows * KEY_BYTES };
}

export class Queries {
  constructor(
    private readonly host: Pick<NodeHost, 'out' | 'gone'>,
    private readonly owners: Owners,
    private readonly sinks: Sinks,
  ) {}

  onKeys(from: PeerId, message: MessageOf<'keys'>): void {
    const owner = this.readyOwner(from, message);
    if (!owner) return;
    const max = Math.min(message.max, MAX_KEYS_PER_PAGE);
    const { table, order, from: first } = message;
    // Rule 47: the client has an older map.
    if (this.host.gone.has(table))
      return this.host.out.send(from, { t: 'reject', id: message.id, items: [[0, 'UNKNOWN_TABLE']] });
    if (!owner.native.tableReady(table)) return this.refuse(from, message);
    const { keys, next } = takingForeign(() =>
      order === 'key'
        ? owner.native.keysInOrder(table, BigInt(first), max)
        : owner.native.keys(table, Number(first), max),
    );
    this.host.out.send(from, { t: 'keysPage', id: message.id, next }, [bytes(keys)]);
  }

  onAsked(from: PeerId, message: MessageOf<'shardStats'> | MessageOf<'evictions'>): void {
    if (message.t === 'shardStats') this.onShardStats(from, message);
    else this.onEvictions(from, message);
  }

  /** Also of a shard that lacks keys: what was evicted there is known. */
  private onEvictions(from: PeerId, message: MessageOf<'evictions'>): void {
    const { id, g, m, table, gen, max } = message;
    const owner = this.owners.at(g, m);
    // An owner that is older than the reader's place is fenced, and tells nothing new.
    if (owner?.phase !== 'ACTIVE' || gen > owner.gen) return this.refuse(from, message);
    if (!owner.tables.has(table))
      return this.host.out.send(from, { t: 'reject', id, items: [[0, 'UNKNOWN_TABLE']] });
    const page = owner.evictions.read({ ...message, max: Math.min(max, MAX_EVICTED_PER_PAGE) });
    const { from: at, end } = page;
    const answer = { t: 'evicted' as const, id, g, m, table, gen: owner.gen, from: at, end };
    this.host.out.send(from, answer, [bytes(page.keys), page.reasons]);
  }

  onShardStats(from: PeerId, message: MessageOf<'shardStats'>): void {
    const owner = this.readyOwner(from, message);
    if (!owner) return;
    const extents = owner.native.extents();
    const tables = owner.native.stats();
    this.host.out.send(from, { t: 'shardStatsReply', id: message.id, extents, tables });
  }

  onCheck(from: PeerId, message: MessageOf<'check'>): void {
    const sink = this.sinks.get(message.sid);
    if (sink) return sink.onCheck(message, from);
    const { id, g, sid } = message;
    const nothing = { checked: 0, unprotected: 0, mismatched: 0, unknown: true };
    this.host.out.send(from, { t: 'checked', id, g, sid, ...nothing });
  }

  onReplica(
    from: PeerId,
    message: MessageOf<'follow'> | MessageOf<'followWant'> | MessageOf<'followProbe'>,
    blocks: Uint8Array,
  ): void {
    if (message.t === 'followProbe') return this.onFollowProbe(from, message);
    const owner = this.owners.at(message.g, message.m);
    if (owner?.gen !== message.gen) return;
    if (message.t === 'follow') owner.replicas.onFollow(from, message);
    else owner.onFollowWant(message, blocks, from);
  }

  /** A replica asks where the shards are that it follows here. */
  private onFollowProbe(from: PeerId, { n, upTo, items }: MessageOf<'followProbe'>): void {
    const has = new Map(items);
    const positions: [id: number, seq: number][] = [];
    for (const owner of this.owners.values()) {
      const position = owner.replicas.probed(from, upTo, has);
      if (position) positions.push(position);
    }
    this.host.out.send(from, { t: 'followProbed', n, items: positions });
  }

  /** The owner of a shard that has all its keys; without one the question is rejected. */
  private readyOwner(from: PeerId, message: MessageOf<'keys'> | MessageOf<'shardStats'>): Owner | undefined {
    const owner = this.owners.at(message.g, message.m);
    if (owner?.phase === 'ACTIVE' && owner.native.keysReady) return owner;
    this.refuse(from, message);
    return undefined;
  }

  /** The client asks again. */
  private refuse(to: PeerId, { id }: { id: number }): void {
    this.host.out.send(to, { t: 'reject', id, items: [[0, 'WRONG_OWNER']] });
  }
}
