/**
 * Data shards of a node that the system refused memory. Each was dropped before it had everything, so nothing
 * is lost with it. The scheduler is told until the shard has another home.
 */
import { describe } from '../../common/errors.js';
import { shardKey } from '../../protocol/items.js';
import { SCHEDULER } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import { Retry } from '../shared/retry.js';
import type { NodeHost } from './host.js';
import type { Sinks } from './sinks.js';

type RefusedShard = Pick<MessageOf<'shardRefused'>, 'g' | 'm' | 'gen'>;

export class RefusedShards {
  /** By `shardKey`: the newest generation of the shard that this node refused. */
  private readonly shards = new Map<number, { shard: RefusedShard; telling: Retry }>();

  constructor(
    private readonly host: Pick<NodeHost, 'out' | 'policy' | 'map'>,
    private readonly sinks: Pick<Sinks, 'completeMirrorOf'>,
  ) {}

  /** The owner was dropped, because the system refused it memory (`error`). */
  add({ group: { id: g }, member: m, gen }: Owner, error: unknown): void {
    const { out, policy } = this.host;
    this.shards.set(shardKey(g, m), { shard: { g, m, gen }, telling: new Retry({ waitMs: policy.retryMs }) });
    out.event('shard.refused', { group: g, member: m, gen, message: describe(error) });
  }

  /**
   * `gen`: the generation in which the map gives the shard to this node; undefined: the map does not. True if
   * this node has refused that generation: a generation never begins twice.
   */
  has(key: number, gen: number | undefined): boolean {
    if (this.shards.get(key)?.shard.gen === gen) return gen !== undefined;
    this.shards.delete(key);
    return false;
  }

  tick(now: number): void {
    const { out, map } = this.host;
    for (const { shard, telling } of this.shards.values()) {
      if (!telling.overdue(now)) continue;
      telling.asked(now);
      const mirror = this.sinks.completeMirrorOf(map.groups[shard.g], shard.m);
      out.send(SCHEDULER, { t: 'shardRefused', ...shard, ...(mirror !== undefined && { mirror }) });
    }
  }
}
