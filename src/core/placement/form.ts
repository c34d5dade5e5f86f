/** Where the groups of a new job are placed: a pure function of its pools and nodes. */
import type { DataEntry, Group, NodeEntry, Pool, SinkEntry } from '../../protocol/map.js';
import { CAPABILITIES, INITIAL_GENERATION } from '../../protocol/map.js';

/** Orders nodes so that neighbours are on different hosts as far as there are different hosts. */
export function interleaveHosts(nodes: readonly NodeEntry[]): NodeEntry[] {
  const byHost = new Map<string, NodeEntry[]>();
  for (const node of nodes) byHost.set(node.host, [...(byHost.get(node.host) ?? []), node]);
  const queues = [...byHost.values()].sort((a, b) => b.length - a.length);
  const ordered: NodeEntry[] = [];
  for (let round = 0; ordered.length < nodes.length; round++) {
    for (const queue of queues) {
      const node = queue[round];
      if (node) ordered.push(node);
    }
  }
  return ordered;
}

/** The first `count` nodes from `start` on, preferring hosts that are not taken yet. */
function choose(ordered: readonly NodeEntry[], start: number, count: number): NodeEntry[] {
  const chosen: NodeEntry[] = [];
  const rotated = ordered.map((_, i) => ordered[(start + i) % ordered.length]!);
  for (const fresh of [true, false]) {
    for (const node of rotated) {
      if (chosen.length === count) return chosen;
      if (chosen.includes(node) || (fresh && chosen.some((other) => other.host === node.host))) continue;
      chosen.push(node);
    }
  }
  return chosen;
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
  const ordered = interleaveHosts(nodes);
  const widest = Math.max(...pools.map((pool) => pool.k));
  const groups: Group[] = [];
  for (const [poolIndex, pool] of pools.entries()) {
    for (let g = 0; g < pool.groups; g++) {
      const seats = choose(ordered, g % ordered.length, Math.max(...pools.map((p) => p.k + p.r)));
      const id = pool.firstGroup + g;
      const data = seats.slice(0, pool.k).map((node, m): DataEntry => {
        const place = { node: node.id, inc: node.inc, gen: INITIAL_GENERATION };
        const toLoad = restored(id, m);
        if (!toLoad) return { ...place, init: true };
        return { ...place, init: false, restore: true, ...(toLoad.reshaped && { rewound: true }) };
      });
      // Of a shard that is loaded a parity has nothing yet.
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
