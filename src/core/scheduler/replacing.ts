/**
 * Takes shards and sinks from living nodes: sinks that stall or hold wrong bytes, and shards for which a node
 * has no memory. Repair puts others in their place. The node is avoided for a while.
 */
import type { Group, PeerId, SinkEntry } from '../../protocol/map.js';
import { mirrorOf } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { canDoWithout } from '../placement/health.js';
import { keepSinks } from '../placement/repair.js';
import type { Avoided } from './avoided.js';
import type { ClusterFacts } from './facts.js';
import { Inquiries, type Inquiry } from './inquiries.js';
import type { Ledger } from './ledger.js';
import type { Membership } from './membership.js';
import type { Placing } from './placing.js';
import type { Reports } from './reports.js';

export class Replacing {
  private readonly inquiries: Inquiries;

  constructor(
    private readonly ledger: Ledger,
    private readonly avoided: Avoided,
    private readonly reports: Reports,
    private readonly facts: ClusterFacts,
    private readonly placing: Placing,
    private readonly membership: Membership,
  ) {
    this.inquiries = new Inquiries(ledger);
  }

  startAt(now: number): void {
    this.inquiries.startAt(now);
  }

  onStalled(from: PeerId, report: MessageOf<'stalled'>): void {
    this.inquiries.keepOnly((g, sid) => this.groupOf(g)?.sinks.some((sink) => sink.sid === sid) === true);
    const found = this.stalledSink(from, report);
    if (found) this.replaceStalled(this.inquiries.ask(from, report, ...found));
  }

  reached(from: PeerId, answer: MessageOf<'reached'>): void {
    for (const inquiry of this.inquiries.answered(from, answer)) this.replaceStalled(inquiry);
  }

  /**
   * A sink is replaced only if the group can do without it meanwhile. A node that is only busy will answer,
   * and to build its sink anew would make others busy, too.
   */
  private stalledSink(from: PeerId, report: MessageOf<'stalled'>): [Group, SinkEntry] | undefined {
    const group = this.groupOf(report.g);
    const owner = group?.data[report.m];
    if (group?.version !== report.v || owner?.gen !== report.gen || owner.node !== from) return undefined;
    const sink = group.sinks.find((entry) => entry.sid === report.sid);
    if (!sink || !this.canDoWithout(group, sink)) return undefined;
    if (this.membership.isOnlyBusy(sink.node, report.forMs ?? 0)) return undefined;
    return [group, sink];
  }

  /** Replaces the sink if all others of its group have said that they live, or count as missing. */
  private replaceStalled({ from, report, waits }: Inquiry): void {
    const [, sink] = this.stalledSink(from, report) ?? [];
    const missing = new Set(this.membership.silentOnes);
    const view = this.facts.view();
    if (!sink || [...waits].some(([node, inc]) => !missing.has(node) && view.alive(node, inc))) return;
    this.inquiries.end(sink.sid);
    this.avoided.stalled(sink.node);
    this.replaceSink(report.g, sink.sid, 'stalled');
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
    const mirror = mirrorOf(group, m);
    const stays = mirror?.node === from && mirror.sid === report.mirror;
    if (stays && this.avoided.isFull(from)) return;
    this.avoided.refused(from);
    const data = [...group.data];
    // An incomplete mirror is dropped, as after the loss of a node: it would only be one more sink that lacks
    // blocks.
    const sinks = keepSinks(group, (sink) => stays || sink !== mirror || sink.node !== from);
    const nowhere = stays ? {} : { node: 0, inc: 0 };
    data[m] = { ...entry, ...nowhere, gen: this.ledger.map.epoch + 1, init: false };
    this.placing.setGroup({ ...group, data, sinks }, 'shard refused', { group: g, member: m, node: from });
    this.placing.reconfigure('shard refused');
  }

  /** Drops a sink; repair puts another in its place. */
  replaceSink(g: number, sid: number, reason: string): boolean {
    const group = this.groupOf(g);
    const wrong = group?.sinks.find((sink) => sink.sid === sid);
    if (!group || !wrong || !this.canDoWithout(group, wrong)) return false;
    const sinks = keepSinks(group, (sink) => sink.sid !== sid);
    this.placing.setGroup({ ...group, sinks }, `replace sink: ${reason}`, { group: g, sid });
    this.placing.reconfigure(reason);
    return true;
  }

  private groupOf(g: number): Group | undefined {
    return this.ledger.map.groups[g];
  }

  /**
   * Members on silent nodes count as missing: if those nodes are gone, the sink's own node may be the one
   * that comes back.
   */
  private canDoWithout(group: Group, sink: SinkEntry): boolean {
    const pool = this.ledger.map.pools[group.pool]!;
    const heard = this.facts.without(this.membership.silentOnes);
    return this.reports.isLost(group) || canDoWithout(group, sink, pool, heard);
  }
}
