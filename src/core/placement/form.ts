/** The groups of a new job: a pure function of its pools and nodes. */
import type { DataEntry, Group, NodeEntry, Pool, SinkEntry } from '../../protocol/map.js';
import { CAPABILITIES, INITIAL_GENERATION } from '../../protocol/map.js';
import { domainOf, type FailureDomain, totalNearness } from './nearness.js';

/** The first items of all lists, then the second ones, and so on; the longest list comes first. */
function interleave<T>(lists: readonly (readonly T[])[]): T[] {
  const queues = [...lists].sort((a, b) => b.length - a.length);
  const rounds = queues[0]?.length ?? 0;
  return Array.from({ length: rounds }, (_, round) => round).flatMap((round) =>
    queues.flatMap((queue) => queue.slice(round, round + 1)),
  );
}

function listsBy<T>(items: readonly T[], keyOf: (item: T) => string): T[][] {
  const lists = new Map<string, T[]>();
  for (const item of items) {
    const list = lists.get(keyOf(item));
    if (list) list.push(item);
    else lists.set(keyOf(item), [item]);
  }
  return [...lists.values()];
}

/** Orders nodes so that neighbours are in different zones and on different hosts, as far as possible. */
export function interleaveHosts(nodes: readonly NodeEntry[]): NodeEntry[] {
  const zones = listsBy(nodes, ({ host }) => domainOf(host).zone);
  return interleave(zones.map((zone) => interleave(listsBy(zone, ({ host }) => host))));
}

interface CandidateNode {
  readonly node: NodeEntry;
  readonly domain: FailureDomain;
}

/** `count` nodes from `start` on, each the least near to the nodes chosen before it. */
function choose(ordered: readonly CandidateNode[], start: number, count: number): NodeEntry[] {
  const left = ordered.map((_, i) => ordered[(start + i) % ordered.length]!);
  const chosen: CandidateNode[] = [];
  while (chosen.length < count && left.length > 0) {
    const taken = chosen.map(({ domain }) => domain);
    let best = { index: 0, near: Infinity };
    for (let index = 0; index < left.length && best.near > 0; index++) {
      const near = totalNearness(left[index]!.domain, taken);
      if (near < best.near) best = { index, near };
    }
    chosen.push(...left.splice(best.index, 1));
  }
  return chosen.map(({ node }) => node);
}

/**
 * The first groups of a job. Group g starts at node g, so that data and parity rotate over the nodes; with
 * one group the first k nodes hold data and the next r only parity. All pools rotate alike: a narrower code
 * (the mirrored one) takes the first data node and the parity nodes of the widest code's group of the same
 * number. `restored`: shards that are loaded from a checkpoint, and whether it has other shards.
 */
export function formGroups(
  pools: readonly Pool[],
  nodes: readonly NodeEntry[],
  epoch: number,
  nextSid: () => number,
  restored: (group: number, member: number) => { reshaped: boolean } | undefined = () => undefined,
): Group[] {
  const ordered = interleaveHosts(nodes).map((node) => ({ node, domain: domainOf(node.host) }));
  const widest = Math.max(...pools.map((pool) => pool.k));
  const groups: Group[] = [];
  for (const [poolIndex, pool] of pools.entries()) {
    for (let g = 0; g < pool.groups; g++) {
      const seats = choose(ordered, g % ordered.length, Math.max(...pools.map((p) => p.k + p.r)));
      const id = pool.firstGroup + g;
      const data = seats.slice(0, pool.k).map((node, m): DataEntry => {
        const home = { node: node.id, inc: node.inc, gen: INITIAL_GENERATION };
        const toLoad = restored(id, m);
        if (!toLoad) return { ...home, init: true };
        return { ...home, init: false, restore: true, ...(toLoad.reshaped && { rewound: true }) };
      });
      // A parity has nothing yet of a shard that is loaded from a checkpoint.
      const init = data.every((entry) => entry.init);
      const sinks = seats.slice(widest, widest + pool.r).map(
        (node, index): SinkEntry => ({
          sid: nextSid(),
          kind: 'P',
          index,
          node: node.id,
          inc: node.inc,
          init,
          ...CAPABILITIES.P,
        }),
      );
      groups.push({ id, pool: poolIndex, version: epoch, data, sinks });
    }
  }
  return groups;
}
