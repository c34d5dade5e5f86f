/** Which nodes serve and which are leaving, by the map, the running changes and the liveness of nodes. */
import type { ClusterMap, Group, NodeEntry, PeerId } from '../../../protocol/map.js';
import type { GroupIndex } from '../../placement/group-index.js';
import type { ClusterView } from '../../placement/health.js';
import type { Ledger } from '../ledger.js';
import type { Change } from '../state.js';
import type { Changes } from './changes.js';

export class Roster {
  constructor(
    private readonly ledger: Ledger,
    private readonly changes: Changes,
    private readonly view: () => ClusterView,
    private readonly index: () => GroupIndex,
  ) {}

  private get map(): ClusterMap {
    return this.ledger.map;
  }

  /** Nodes that the widest code needs. */
  get widest(): number {
    return Math.max(...this.map.pools.map((pool) => pool.k + pool.r));
  }

  /** Nodes that are being emptied: nothing new goes there. */
  get leaving(): ReadonlySet<PeerId> {
    const leaving = new Set<PeerId>();
    for (const change of this.changes.running) {
      for (const { node, inc } of change.leaving)
        if (this.map.nodes.some((entry) => entry.id === node && entry.inc === inc)) leaving.add(node);
    }
    return leaving;
  }

  /** The leaving nodes that are alive, connected or not: they still have shards to hand over. */
  get emptied(): NodeEntry[] {
    const { leaving } = this;
    const view = this.view();
    return this.map.nodes.filter(({ id, inc }) => leaving.has(id) && view.alive(id, inc));
  }

  /** Nodes that are alive, connected and not leaving. */
  get present(): NodeEntry[] {
    const { leaving } = this;
    return this.view().nodes.filter((node) => !leaving.has(node.id));
  }

  /**
   * Number of nodes that would be left without this one. Connections do not count: after a restart of the
   * scheduler, nodes take time to reconnect.
   */
  without(id: PeerId): number {
    const { leaving } = this;
    const view = this.view();
    const stays = (node: NodeEntry) => !leaving.has(node.id) && view.alive(node.id, node.inc);
    return this.map.nodes.filter((node) => node.id !== id && stays(node)).length;
  }

  get holders(): Pick<ReadonlySet<PeerId>, 'has'> {
    return this.index().load;
  }

  /** Shards of `groups` that these processes hold. */
  heldBy(processes: Change['leaving'], groups: readonly Group[]): number {
    const entries = groups.flatMap(({ data, sinks }) => [...data, ...sinks]);
    return entries.filter((entry) =>
      processes.some(({ node, inc }) => entry.node === node && entry.inc === inc),
    ).length;
  }

  isServing(node: NodeEntry): boolean {
    return !node.standby || this.holders.has(node.id);
  }

  /** A standby serves once it has taken over something. */
  get serving(): NodeEntry[] {
    const { holders } = this;
    return this.present.filter((node) => !node.standby || holders.has(node.id));
  }
}
