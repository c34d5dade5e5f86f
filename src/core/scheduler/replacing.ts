/**
 * Takes shards and sinks from living nodes: sinks that stall or hold wrong bytes, and shards for which a node
 * has no memory. Repair puts others in their place. The node gets nothing new for a while.
 */
import type { Group, PeerId, SinkEntry } from '../../protocol/map.js';
import { mirrorOf } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { type ClusterView, canDoWithout } from '../placement/health.js';
import { keepSinks } from '../placement/repair.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import type { Ledger } from './ledger.js';

/** What the scheduler lends to it. */
export interface ReplacingHost {
  readonly ledger: Ledger;
  readonly policy: SchedulerPolicy;
  /** As if those that are silent were gone. */
  viewOfHeard(): ClusterView;
  isLost(group: Group): boolean;
  reconfigure(reason: string): void;
}

export class Replacing {
  /** Node -> time until which it gets nothing new. */
  private readonly avoid = new Map<PeerId, number>();
  /** Node -> time until which it gets nothing at all: the system has refused it memory. */
  private readonly refusing = new Map<PeerId, number>();
  private now = 0;

  constructor(private readonly host: ReplacingHost) {}

  get avoided(): ReadonlySet<PeerId> {
    return new Set([...this.avoid.keys(), ...this.refusing.keys()]);
  }

  /** Some of those that are avoided. */
  get full(): ReadonlySet<PeerId> {
    return new Set(this.refusing.keys());
  }

  /** True if some may get something again. */
  tick(now: number): boolean {
    this.now = now;
    let changed = false;
    for (const nodes of [this.avoid, this.refusing]) {
      for (const [node, until] of nodes) if (until <= now) changed = nodes.delete(node);
    }
    return changed;
  }

  /** The group can do without the sink meanwhile, or it is left alone. */
  onStalled(from: PeerId, report: MessageOf<'stalled'>): void {
    const group = this.groupOf(report.g);
    const owner = group?.data[report.m];
    if (group?.version !== report.v || owner?.gen !== report.gen || owner.node !== from) return;
    const sink = group.sinks.find((entry) => entry.sid === report.sid);
    if (!sink || !this.canDoWithout(group, sink)) return;
    this.avoid.set(sink.node, this.now + this.host.policy.avoidMs);
    this.replaceSink(report.g, report.sid, 'stalled');
  }

  /**
   * The shard lacks something and is gone from its node, so it gets a new home, or a new generation. If the
   * node has a complete mirror of the shard, the shard stays there in a new generation, because another node
   * would lack these bytes: the node tries again. The node reports the mirror itself, because a restarted
   * scheduler does not know yet what is complete.
   */
  onShardRefused(from: PeerId, report: MessageOf<'shardRefused'>): void {
    const { g, m, gen } = report;
    const group = this.groupOf(g);
    const entry = group?.data[m];
    if (!group || entry?.node !== from || entry.gen !== gen) return;
    const { ledger, policy } = this.host;
    const mirror = mirrorOf(group, m);
    const stays = mirror?.node === from && mirror.sid === report.mirror;
    if (stays && this.refusing.has(from)) return;
    this.refusing.set(from, this.now + policy.avoidMs);
    const data = [...group.data];
    // An incomplete mirror is dropped, as after the loss of a node: it would only be one more sink that lacks
    // blocks.
    const sinks = keepSinks(group, (sink) => stays || sink !== mirror || sink.node !== from);
    const nowhere = stays ? {} : { node: 0, inc: 0 };
    data[m] = { ...entry, ...nowhere, gen: ledger.map.epoch + 1, init: false };
    ledger.setGroup({ ...group, data, sinks }, 'shard refused', { group: g, member: m, node: from });
    this.host.reconfigure('shard refused');
  }

  /** Drops a sink; repair puts another in its place. */
  replaceSink(g: number, sid: number, reason: string): boolean {
    const group = this.groupOf(g);
    const wrong = group?.sinks.find((sink) => sink.sid === sid);
    if (!group || !wrong || !this.canDoWithout(group, wrong)) return false;
    const sinks = keepSinks(group, (sink) => sink.sid !== sid);
    this.host.ledger.setGroup({ ...group, sinks }, `replace sink: ${reason}`, { group: g, sid });
    this.host.reconfigure(reason);
    return true;
  }

  private groupOf(g: number): Group | undefined {
    return this.host.ledger.map.groups[g];
  }

  /**
   * Members on silent nodes count as missing: if those nodes are gone, the sink's own node may be the one
   * that comes back.
   */
  private canDoWithout(group: Group, sink: SinkEntry): boolean {
    const pool = this.host.ledger.map.pools[group.pool]!;
    return this.host.isLost(group) || canDoWithout(group, sink, pool, this.host.viewOfHeard());
  }
}
