/**
 * The state of a group by the latest reports, and the losses that it can bear: pure functions of the map and
 * of the scheduler's knowledge of the nodes.
 */
import type { Group, NodeEntry, PeerId, Pool, SinkEntry } from '../../protocol/map.js';
import { hasMove, isParted, mirrorOf, parities } from '../../protocol/map.js';

/** The scheduler's knowledge of nodes, shards and sinks, by the latest reports. */
export interface ClusterView {
  /** Nodes that are alive, in a fixed order. */
  nodes: readonly NodeEntry[];
  alive(id: PeerId, inc: number): boolean;
  sinkComplete(sid: number): boolean;
  shardComplete(group: number, member: number, gen: number): boolean;
  /** Nodes that should get nothing new for now. */
  avoid?: ReadonlySet<PeerId>;
  /**
   * Nodes of `avoid` that the system refuses memory: they get nothing at all, even if it fits nowhere else.
   */
  full?: ReadonlySet<PeerId>;
  /** Nodes that are being emptied: they get only what is lost and fits nowhere else. */
  leaving?: ReadonlySet<PeerId>;
}

const indexes = new WeakMap<readonly NodeEntry[], ReadonlyMap<PeerId, NodeEntry>>();

/** The nodes by id. Lists of nodes are replaced, never changed, so each is indexed once. */
export function nodesById(nodes: readonly NodeEntry[]): ReadonlyMap<PeerId, NodeEntry> {
  let index = indexes.get(nodes);
  if (!index) {
    index = new Map(nodes.map((node) => [node.id, node]));
    indexes.set(nodes, index);
  }
  return index;
}

/**
 * True if the holder of every seat is complete by the latest reports. A planned move hands over only then.
 */
export function isHealthy(group: Group, pool: Pool, view: ClusterView): boolean {
  for (const [m, entry] of group.data.entries()) {
    if (entry.node === 0 || !view.alive(entry.node, entry.inc) || !view.shardComplete(group.id, m, entry.gen))
      return false;
  }
  for (let index = 0; index < pool.r; index++) {
    if (!group.sinks.some((s) => s.protects && s.index === index && view.sinkComplete(s.sid))) return false;
  }
  return true;
}

/**
 * True if the node of a shard has a complete mirror of it. That is so after a cut-over: the mirror has all
 * bytes of the shard while the new owner takes them over.
 */
export function isMirrored(group: Group, m: number, view: ClusterView): boolean {
  const mirror = mirrorOf(group, m);
  return mirror !== undefined && mirror.node === group.data[m]?.node && view.sinkComplete(mirror.sid);
}

/** True if every parity is there and every seat has a node of its own. */
export function isSpread(group: Group, pool: Pool): boolean {
  return parities(group).length === pool.r && isParted(group);
}

/**
 * Number of seats whose data shard or parity is incomplete or missing, by the latest reports. A shard that is
 * being handed over counts as present. Otherwise the scheduler would not replace a dead sink of the shard,
 * and its new owner would wait for that sink for ever. `without`: a node that counts as gone.
 */
function lackingSeats(group: Group, pool: Pool, view: ClusterView, without: PeerId = -1): number {
  const nodes = nodesById(view.nodes);
  const present = (id: PeerId) => nodes.has(id);
  let lacking = 0;
  for (const [m, entry] of group.data.entries()) {
    // The shard is loaded from a checkpoint, so it is not lost with its node: another node loads it.
    if (entry.restore) continue;
    const there = entry.node !== without && present(entry.node);
    const complete = view.shardComplete(group.id, m, entry.gen) || isMirrored(group, m, view);
    if (!there || !complete) lacking++;
  }
  for (let index = 0; index < pool.r; index++) {
    const complete = group.sinks.some(
      (s) =>
        s.protects && s.index === index && s.node !== without && present(s.node) && view.sinkComplete(s.sid),
    );
    if (!complete) lacking++;
  }
  return lacking;
}

/** True when the next repair can improve the group, or an improvement is under way. */
export function canImprove(group: Group, pool: Pool, view: ClusterView): boolean {
  if (isSpread(group, pool)) return false;
  if (hasMove(group)) return true;
  const used = new Set([...group.data, ...group.sinks].map((entry) => entry.node));
  return view.nodes.some((node) => !used.has(node.id));
}

/**
 * True if a group would lack more than r seats without the node. A node that did not restart may only be
 * slow, and still has its data. A group that is beyond repair (`lost`) does not count.
 */
export function isIndispensable(
  node: PeerId,
  groups: readonly Group[],
  pools: readonly Pool[],
  view: ClusterView,
  lost: (group: Group) => boolean,
): boolean {
  return groups.some((group) => {
    const pool = pools[group.pool]!;
    const holds = [...group.data, ...group.sinks].some((entry) => entry.node === node);
    return holds && !lost(group) && lackingSeats(group, pool, view, node) > pool.r;
  });
}

/** True if the group lacks at most r seats without this sink, by the latest reports. */
export function canDoWithout(group: Group, sink: SinkEntry, pool: Pool, view: ClusterView): boolean {
  const others = { ...group, sinks: group.sinks.filter((entry) => entry !== sink) };
  return lackingSeats(others, pool, view) <= pool.r;
}

/** Number of data shards and sinks of each node. */
export function shardsPerNode(groups: readonly Group[]): Map<PeerId, number> {
  const load = new Map<PeerId, number>();
  for (const group of groups) {
    for (const entry of [...group.data, ...group.sinks])
      load.set(entry.node, (load.get(entry.node) ?? 0) + 1);
  }
  return load;
}
