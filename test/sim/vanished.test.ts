import { describe, expect, it } from 'vitest';
import type { SimulatedCluster } from '../../src/sim/cluster.js';
import { Network } from '../../src/sim/network.js';
import { Random } from '../../src/sim/random.js';
import { checkVanished } from '../../src/sim/vanished.js';
import { Violation } from '../../src/sim/violation.js';

const NODES = [1, 2, 3, 4, 5];

/** Five nodes, and actor 0, the scheduler. What `cuts` lists was cut off at 1,000; it is 3,000 now. */
function cluster(cuts: [number, number][], neighbours = NODES): SimulatedCluster {
  const network = new Network(new Random(1), NODES.length + 1, 0, () => 0);
  network.healedAt = -1e6;
  for (const [a, b] of cuts) network.block(a, b, 1000);
  return {
    ...{ network, now: 3000, retry: 100, count: () => {} },
    control: { disk: { map: { groups: [{ data: neighbours.map((node) => ({ node })), sinks: [] }] } } },
    actorOf: new Map(NODES.map((id) => [id, id])),
    links: new Map(NODES.map((id) => [id, { actor: id, peer: id, inc: 1 }])),
  } as unknown as SimulatedCluster;
}

const fromMost: [number, number][] = [1, 2, 3].map((other) => [other, 5]);

describe('the check of nodes that vanish', () => {
  it('finds one that the scheduler hears', () => {
    expect(() => checkVanished(cluster(fromMost), 5)).toThrow(Violation);
  });

  it('finds one that most of the others hear', () => {
    expect(() => checkVanished(cluster([[0, 5]]), 5)).toThrow(Violation);
    checkVanished(cluster([[0, 5], ...fromMost]), 5);
  });

  it('does not count others that the scheduler does not hear (seed 2222003449)', () => {
    const apart: [number, number][] = [2, 3, 4].map((other) => [0, other]);
    checkVanished(cluster([[0, 5], [1, 5], ...apart]), 5);
  });

  it('does not count others without a link to it (seed 2400002528)', () => {
    checkVanished(
      cluster(
        [
          [0, 5],
          [1, 5],
        ],
        [1, 5],
      ),
      5,
    );
  });
});
