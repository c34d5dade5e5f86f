/**
 * Data shards of a node that the system refused memory. Each was dropped before it had everything, so nothing
 * is lost with it; the scheduler is told until the shard has another home.
 */
import { describe } from '../../errors.js';
import { shardKey } from '../../protocol/items.js';
import { SCHEDULER } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import type { Outbox } from '../shared/outbox.js';
import { Retry } from '../shared/retry.js';

type Refused = Pick<MessageOf<'shardRefused'>, 'g' | 'm' | 'gen'>;

export class RefusedShards {
  /** By `shardKey`. */
  private readonly shards = new Map<number, { shard: Refused; telling: Retry }>();

  constructor(
    private readonly out: Outbox,
    private readonly retryMs: number,
    private readonly drop: (key: number, owner: Owner) => void,
    /** The complete mirror of the shard on this node, if there is one now. */
    private readonly mirrorOf: (g: number, m: number) => number | undefined,
  ) {}

  /**
   * Runs a step of an owner. If the system refuses memory before the shard was ever complete, the shard is
   * dropped as if its node had died: the other members still have all that it needs.
   */
  during(owner: Owner, step: () => void): void {
    try {
      step();
    } catch (error) {
      if ((error as { code?: unknown } | undefined)?.code !== 'MEMORY_LIMIT' || owner.wasComplete)
        throw error;
      const { group, member: m, gen } = owner;
      const key = shardKey(group.id, m);
      this.drop(key, owner);
      const shard = { g: group.id, m, gen };
      this.shards.set(key, { shard, telling: new Retry({ waitMs: this.retryMs }) });
      this.out.event('shard.refused', { group: group.id, member: m, gen, message: describe(error) });
    }
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
    for (const { shard, telling } of this.shards.values()) {
      if (!telling.overdue(now)) continue;
      telling.asked(now);
      const mirror = this.mirrorOf(shard.g, shard.m);
      this.out.send(SCHEDULER, { t: 'shardRefused', ...shard, ...(mirror !== undefined && { mirror }) });
    }
  }
}
