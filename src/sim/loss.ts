/** Who lacks what, seen from above: the truth that the scheduler can only guess from heartbeats. */
import type { ClusterMap } from '../protocol/map.js';
import type { Cluster } from './cluster.js';

/** Members of a group that lack something, if actor `without` were gone, too. */
function lackingMembers(cluster: Cluster, map: ClusterMap, g: number, without: number): number {
  const group = map.groups[g]!;
  let lacking = 0;
  const at = (id: number, inc: number) =>
    cluster.actorOf.get(id) === without ? undefined : cluster.processOf(id, inc);
  for (const [m, entry] of group.data.entries()) {
    const node = at(entry.node, entry.inc);
    const owner = node?.ownerAt(g, m);
    const whole =
      owner?.gen === entry.gen
        ? owner.present
        : entry.init && node !== undefined && node.map.epoch < group.version;
    if (whole) continue;
    const mirrored = group.sinks.some(
      (sink) =>
        sink.kind === 'M' && sink.index === m && sink.node === entry.node && node?.sinkAt(sink.sid)?.full,
    );
    if (!mirrored) lacking++;
  }
  for (let index = 0; index < cluster.config.r; index++) {
    const full = group.sinks.some((sink) => {
      const node = sink.kind === 'P' && sink.index === index ? at(sink.node, sink.inc) : undefined;
      const there = node?.sinkAt(sink.sid);
      return there ? there.full : sink.init && node !== undefined && node.map.epoch < group.version;
    });
    if (!full) lacking++;
  }
  return lacking;
}

/** The most that lack in any group by the durable map, if actor `without` were gone, too (-1: nobody). */
export function maxLacking(cluster: Cluster, without: number): number {
  const { map } = cluster.control.disk;
  let most = 0;
  for (const group of map.groups) most = Math.max(most, lackingMembers(cluster, map, group.id, without));
  return most;
}

/** To be called after everything that can make more members lack. */
export function watchLoss(cluster: Cluster): void {
  if (!cluster.overwhelmed && maxLacking(cluster, -1) > cluster.config.r) {
    cluster.overwhelmed = true;
    cluster.log(() => '** MORE THAN r LACKING');
  }
}
