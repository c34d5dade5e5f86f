/** The blocks that seats lack in truth, which the scheduler can only guess from heartbeats. */
import { type ClusterMap, type Group, mirrorOf, type PeerId } from '../protocol/map.js';
import type { SimulatedCluster } from './cluster.js';

/** Assumptions about the processes. */
interface Supposition {
  /** An actor that counts as gone. */
  actor?: number;
  /** True for a process whose seats count as complete. */
  countedComplete?: (id: PeerId, inc: number) => boolean;
}

/** Number of seats of a group whose data shard or parity is incomplete or missing. */
export function lackingSeats(
  cluster: SimulatedCluster,
  map: ClusterMap,
  g: number,
  { actor, countedComplete }: Supposition = {},
): number {
  const group = map.groups[g]!;
  let lacking = 0;
  const at = (id: number, inc: number) =>
    cluster.actorOf.get(id) === actor ? undefined : cluster.processOf(id, inc);
  const { sinks } = group;
  for (const [m, entry] of group.data.entries()) {
    if (countedComplete?.(entry.node, entry.inc) || entry.restore) continue;
    const node = at(entry.node, entry.inc);
    const owner = node?.ownerAt(g, m);
    const complete =
      owner?.gen === entry.gen
        ? owner.complete || (owner.phase === 'RESTORE' && owner.isLoaded)
        : entry.init && node !== undefined && node.map.epoch < group.version;
    if (complete) continue;
    const mirror = mirrorOf(group, m);
    const mirrored =
      mirror?.node === entry.node && mirror !== undefined && node?.sinkAt(mirror.sid)?.complete;
    if (!mirrored) lacking++;
  }
  for (let index = 0; index < cluster.config.r; index++) {
    const complete = sinks.some((sink) => {
      if (!sink.protects || sink.index !== index) return false;
      if (countedComplete?.(sink.node, sink.inc)) return true;
      const node = at(sink.node, sink.inc);
      const there = node?.sinkAt(sink.sid);
      return there ? there.complete : sink.init && node !== undefined && node.map.epoch < group.version;
    });
    if (!complete) lacking++;
  }
  return lacking;
}

/** Most seats that lack in any group by the durable map, without `actor`. */
export function maxLacking(cluster: SimulatedCluster, actor?: number): number {
  const { map } = cluster.control.disk;
  let most = 0;
  for (const group of map.groups)
    most = Math.max(most, lackingSeats(cluster, map, group.id, actor === undefined ? {} : { actor }));
  return most;
}

/** Notes whether a group lacks more than r seats. Called after everything that can make more seats lack. */
export function watchLoss(cluster: SimulatedCluster): void {
  if (!cluster.overwhelmed && maxLacking(cluster) > cluster.config.r) {
    cluster.overwhelmed = true;
    cluster.log(() => '** MORE THAN r LACKING');
  }
}

/** True if a decision has the shard loaded from a checkpoint. The sinks of its group are of no use then. */
export function isLoadedAgain(before: Group, after: Group, m: number): boolean {
  const [was, is] = [before.data[m]!, after.data[m]!];
  return is.restore === true && was.gen !== is.gen;
}
