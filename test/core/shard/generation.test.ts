// A shard that is back at a node has a new ownership, which ignores answers to the former one that are still
// under way.
import { afterEach, expect, it } from 'vitest';
import type { Message } from '../../../src/protocol/messages.js';
import { Cluster, kind } from '../harness.js';
import { acksIn, pushMessage } from '../packed.js';

let cluster: Cluster;
afterEach(() => cluster.close());

const AWAY = 1;
const BACK = 2;

/**
 * Shard 0 is owned by node 0 in generation AWAY, then by another node, then by node 0 again in generation
 * BACK. Messages of sinks to node 0 do not arrive.
 */
function backAtNode0(phase: 'FENCE' | 'ACTIVE') {
  cluster = new Cluster({ k: 1, r: 2, spares: 0 });
  cluster.client.push({ 0: [{ keys: [1] }] });
  cluster.settle();
  const answers = cluster.hold(kind(['openAck', 'startAck'], { to: 1 }));
  const { map } = cluster;
  const group = map.groups[0]!;
  const mapAt = (epoch: number, node: number, gen: number): Message => {
    const data = [{ node, inc: 1, gen, init: false }];
    return { t: 'map', map: { ...map, epoch, groups: [{ ...group, version: epoch, data }] } };
  };
  const first = map.epoch + AWAY;
  for (const { id } of cluster.nodes) {
    cluster.send(0, id, mapAt(first, 9, first));
    cluster.send(0, id, mapAt(first + 1, 1, first + 1));
  }
  cluster.settle();
  if (phase === 'ACTIVE') {
    answers.release();
    cluster.settle();
  }
  const owner = cluster.nodes[0]!.node!.ownerAt(0, 0)!;
  expect([owner.gen, owner.phase]).toEqual([map.epoch + BACK, phase]);
  return { owner, sinks: group.sinks, old: first };
}

it('an old promise does not fence anything for the new generation', () => {
  const { owner, sinks, old } = backAtNode0('FENCE');
  const mark = cluster.history.length;
  for (const { sid, node } of sinks) {
    const position = { none: false, sgen: 1, applied: 1, attempt: 1 };
    cluster.deliver({
      from: node,
      to: 1,
      message: { t: 'openAck', g: 0, m: 0, sid, gen: old, ...position },
      parts: [],
    });
  }
  expect(owner.phase).toBe('FENCE');
  expect(cluster.sent('start', mark)).toEqual([]);
});

it('an old acknowledgement does not make a push of the new generation durable', () => {
  const { owner, sinks, old } = backAtNode0('ACTIVE');
  cluster.hold(kind('applied'));
  const mark = cluster.history.length;
  const { parts } = cluster.sent('push')[0]!;
  const message = pushMessage(0, [0, 0, 2], parts[0]!.byteLength);
  cluster.deliver({ from: cluster.client.id, to: 1, message, parts });
  cluster.settle();
  for (const { sid, node } of sinks) {
    const applied: Message = { t: 'applied', g: 0, m: 0, sid, gen: old, applied: owner.stream.seq };
    cluster.deliver({ from: node, to: 1, message: applied, parts: [] });
  }
  expect(cluster.sent('delta', mark)).toHaveLength(2);
  expect(cluster.sent('pushAck', mark)).toEqual([]);
  for (const { sid, node } of sinks) {
    const applied: Message = { t: 'applied', g: 0, m: 0, sid, gen: owner.gen, applied: owner.stream.seq };
    cluster.deliver({ from: node, to: 1, message: applied, parts: [] });
  }
  expect(cluster.sent('pushAck', mark).map(({ message: ack }) => acksIn(ack))).toEqual([[[0, 0, 2]]]);
});
