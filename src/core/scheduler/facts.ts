/**
 * All that decisions about placement depend on: the newest map, who is alive, what is complete, and which
 * nodes are avoided or leave. The parts below write these facts, each its own, and say when they have
 * changed; the parts above read them here.
 */
import type { ClusterMap, Group, NodeEntry, PeerId } from '../../protocol/map.js';
import { GroupIndex } from '../placement/group-index.js';
import { type ClusterView, isIndispensable } from '../placement/health.js';
import type { Avoided } from './avoided.js';
import type { Ledger } from './ledger.js';
import type { Liveness } from './liveness.js';
import type { Reports } from './reports.js';
import type { Changes } from './scaling/changes.js';

export class ClusterFacts {
  /**
   * Grows with every change. A conclusion remembers the version that it was drawn from, and is drawn again
   * when the version is another one.
   */
  private changes = 0;
  private readonly groups = new GroupIndex();

  constructor(
    private readonly ledger: Ledger,
    private readonly liveness: Liveness,
    private readonly reports: Reports,
    private readonly avoided: Avoided,
    private readonly scaling: Changes,
  ) {}

  get version(): number {
    return this.changes;
  }

  /** Where shards may be placed, or what is known of them, may have changed. */
  changed(): void {
    this.changes++;
  }

  private get map(): ClusterMap {
    return this.ledger.map;
  }

  /** The groups of the newest map, by the nodes that hold them and by what moves in them. */
  get index(): GroupIndex {
    return this.groups.follow(this.map.groups, this.map.pools);
  }

  /** Nodes that an entry of the map names. */
  get holders(): Pick<ReadonlySet<PeerId>, 'has'> {
    return this.index.load;
  }

  /** Nodes that are being emptied: nothing new goes there. */
  get leaving(): ReadonlySet<PeerId> {
    return this.scaling.leaving;
  }

  /** Nodes of the map that are alive and connected, so that something new can be placed there. */
  get present(): readonly NodeEntry[] {
    return this.liveness.presentOf(this.map.nodes);
  }

  view(): ClusterView {
    const { liveness, reports, avoided } = this;
    return {
      nodes: this.present,
      alive: (id, inc) => liveness.isAlive(id, inc),
      sinkComplete: (sid) => reports.isSinkComplete(sid),
      shardComplete: (group, member, gen) => reports.isShardComplete(group, member, gen),
      avoid: avoided.all,
      full: avoided.full,
      leaving: this.leaving,
    };
  }

  /** As if these nodes were gone. */
  without(gone: readonly PeerId[]): ClusterView {
    const view = this.view();
    return { ...view, nodes: view.nodes.filter(({ id }) => !gone.includes(id)) };
  }

  /** The groups in which the node holds something. */
  heldBy(node: PeerId): Group[] {
    return this.index.groupsOf(node).map((g) => this.map.groups[g]!);
  }

  /**
   * More members of a group than it can do without would be missing without this node, and without those
   * `besides` (rule 30).
   */
  isIndispensable(node: PeerId, besides: readonly PeerId[]): boolean {
    const isLost = (group: Group): boolean => this.reports.isLost(group);
    return isIndispensable(node, this.heldBy(node), this.map.pools, this.without(besides), isLost);
  }

  /** The process has left or is too long away: its reports and its liveness mean nothing any more. */
  forget(node: PeerId): void {
    this.liveness.forget(node);
    this.reports.forget(node);
  }
}
