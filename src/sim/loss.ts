/** Who lacks what, seen from above: the truth that the scheduler can only guess from heartbeats. */
import { type ClusterMap, type Group, mirrorOf, type PeerId } from '../protocol/map.js';
import type { Cluster } from './cluster.js';

/** As if something else were gone, or not. */
interface Supposition {
  /** This actor were gone, too. */
  actor?: number;
  /** What this process had were still there. */
  countedComplete?: (id: PeerId, inc: number) => boolean;
}

/** Members of a group that lack something. */
export function lackingMembers(
  cluster: Cluster,
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

/** The most that lack in any group by the durable map, if an actor were gone, too. */
export function maxLacking(cluster: Cluster, actor?: number): number {
  const { map } = cluster.control.disk;
  let most = 0;
  for (const group of map.groups)
    most = Math.max(most, lackingMembers(cluster, map, group.id, actor === undefined ? {} : { actor }));
  return most;
}

/** To be called after everything that can make more members lack. */
export function watchLoss(cluster: Cluster): void {
  if (!cluster.overwhelmed && maxLacking(cluster) > cluster.config.r) {
    cluster.overwhelmed = true;
    cluster.log(() => '** MORE THAN r LACKING');
  }
}

/** A decision has the shard loaded from a checkpoint. What sinks have of its group is of no use then. */
export function isLoadedAgain(before: Group, after: Group, m: number): boolean {
  const [was, is] = [before.data[m]!, after.data[m]!];
  return is.restore === true && was.gen !== is.gen;
}
