/**
 * Who may be declared vanished (rule 33): nobody whom the scheduler hears, or most of those that have a group
 * in common with it. Others have no link to it. Those that the scheduler does not hear cannot tell it.
 */
import type { PeerId } from '../protocol/map.js';
import type { Cluster } from './cluster.js';
import { Violation } from './violation.js';

/** A node is gone that has acknowledged nothing for so many times of repeating a message. */
export const VANISHED_RETRIES = 4;

export function checkVanished(cluster: Cluster, node: PeerId): void {
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
