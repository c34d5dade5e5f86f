/** A warning of failure domains (host labels) that cannot be right: a pure function of the nodes. */
import type { NodeEntry } from '../../protocol/map.js';

/** The value that all have in common; undefined when they differ, or one is undefined. */
function shared<T>(values: readonly (T | undefined)[]): T | undefined {
  return values.every((value) => value === values[0]) ? values[0] : undefined;
}

/** Hosts that only processes of the same machine can dial. */
const LOOPBACK = /^(127\.|\[::1\]$|localhost$)/;

/**
 * The problem with the labels, for people. Where every node has a label of its own and all run on one
 * machine, the loss of that machine loses more of a group than its code covers. Containers have host names of
 * their own, so with default labels that happens to them.
 *
 * A job on loopback addresses is not doubted. It cannot have a second machine, and the default label is the
 * same for all of its nodes: labels that differ there are chosen, as those of `kintsugi local` are.
 *
 * The text does not count nodes, so that it stays the same while nodes join.
 */
export function domainsProblem(nodes: readonly NodeEntry[]): string | undefined {
  if (nodes.length < 2 || new Set(nodes.map(({ host }) => host)).size < nodes.length) return undefined;
  const hosts = nodes.map(({ address }) => address.slice(0, address.lastIndexOf(':')));
  if (hosts.every((host) => LOOPBACK.test(host))) return undefined;
  const advice = 'give the PS of one machine the same --host-label';
  if (shared(nodes.map(({ machine }) => machine)) !== undefined)
    return `all PS run on one machine under different host labels: ${advice}`;
  const address = shared(hosts);
  if (address === undefined) return undefined;
  return `all PS have the address ${address} under different host labels: ${advice}`;
}
