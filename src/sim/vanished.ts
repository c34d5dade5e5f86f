/**
 * The check of rule 33: a node is declared vanished only when its machine acknowledges nothing to the
 * scheduler, nor to any of the nodes that were asked and have a link to it. Here the scheduler must not hear
 * the node, nor most of the nodes that have a group in common with it. Other nodes have no link to it, and
 * nodes that the scheduler does not hear cannot answer.
 */
import type { PeerId } from '../protocol/map.js';
import type { SimulatedCluster } from './cluster.js';
import { Violation } from './violation.js';

/** Time without an acknowledgement after which a node has vanished, in retry times. */
export const VANISHED_RETRIES = 4;

export function checkVanished(cluster: SimulatedCluster, node: PeerId): void {
  const { network, now, retry, actorOf, links } = cluster;
  const actor = actorOf.get(node)!;
  const recently = retry * VANISHED_RETRIES;
  cluster.count('vanished');
  if (now - network.healedAt < recently) return;
  if (network.unacknowledgedFor(0, actor, now) < recently)
    throw new Violation(`node ${node} was declared vanished though the scheduler hears it`);
  const groups = cluster.control.disk.map.groups.map(
    ({ data, sinks }) => new Set([...data, ...sinks].map((member) => member.node)),
  );
  const neighbours = new Set(
    groups.filter((members) => members.has(node)).flatMap((members) => [...members]),
  );
  const witnesses = [...links.values()].filter(
    ({ peer, ...link }) =>
      link.actor !== actor &&
      peer !== undefined &&
      neighbours.has(peer) &&
      network.unacknowledgedFor(0, link.actor, now) === 0,
  );
  const hearing = witnesses.filter((link) => network.unacknowledgedFor(link.actor, actor, now) === 0);
  if (2 * hearing.length > witnesses.length)
    throw new Violation(`node ${node} was declared vanished though most of the others hear it`);
}
