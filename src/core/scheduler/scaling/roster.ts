/** Nodes that serve and nodes that are emptied, by the map, the running changes and the liveness of nodes. */
import type { ClusterMap, Group, NodeEntry, PeerId } from '../../../protocol/map.js';
import type { ClusterFacts } from '../facts.js';
import type { Ledger } from '../ledger.js';
import type { Liveness } from '../liveness.js';
import type { Change } from '../state.js';

export class Roster {
  constructor(
    private readonly ledger: Ledger,
    private readonly liveness: Liveness,
    private readonly facts: ClusterFacts,
  ) {}

  private get map(): ClusterMap {
    return this.ledger.map;
  }

  /** Number of nodes that the widest code needs. */
  get widest(): number {
    return Math.max(...this.map.pools.map((pool) => pool.k + pool.r));
  }

  /** The leaving nodes that are alive, connected or not: they still have shards to hand over. */
  get emptied(): NodeEntry[] {
    const { leaving } = this.facts;
    return this.map.nodes.filter(({ id, inc }) => leaving.has(id) && this.liveness.isAlive(id, inc));
  }

  /** Nodes that are alive, connected and not leaving. */
  get present(): NodeEntry[] {
    const { leaving, present } = this.facts;
    return present.filter((node) => !leaving.has(node.id));
  }

  /**
   * Number of nodes that would be left without this one. Connections do not count: after a restart of the
   * scheduler, nodes take time to reconnect.
   */
  without(id: PeerId): number {
    const { leaving } = this.facts;
    const stays = (node: NodeEntry) => !leaving.has(node.id) && this.liveness.isAlive(node.id, node.inc);
    return this.map.nodes.filter((node) => node.id !== id && stays(node)).length;
  }

  /** Shards of `groups` that these processes hold. */
  heldBy(processes: Change['leaving'], groups: readonly Group[]): number {
    const entries = groups.flatMap(({ data, sinks }) => [...data, ...sinks]);
    return entries.filter((entry) =>
      processes.some(({ node, inc }) => entry.node === node && entry.inc === inc),
    ).length;
  }

  isServing(node: NodeEntry): boolean {
    return !node.standby || this.facts.holders.has(node.id);
  }

  /** A standby serves once it has taken over something. */
  get serving(): NodeEntry[] {
    const { holders } = this.facts;
    return this.present.filter((node) => !node.standby || holders.has(node.id));
  }
}
