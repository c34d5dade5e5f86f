// Rule 16: a Lacking holds in the version of the group that it names. Since then the member may have got the
// blocks back.
import { afterEach, expect, it } from 'vitest';
import type { Message } from '../../../src/protocol/messages.js';
import { Cluster, kind } from '../harness.js';

let cluster: Cluster;
afterEach(() => cluster.close());

it('lacking of an older version of the group does not make an equation', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 1 });
  cluster.client.push({ 0: [{ keys: [1], value: 3 }], 1: [{ keys: [1], value: 4 }] });
  cluster.settle();
  const survivor = cluster.map.groups[0]!.data[1]!;
  const wants = cluster.hold(kind('want', { to: survivor.node }));
  cluster.crash(0);
  cluster.settle();
  const { version, sinks } = cluster.map.groups[0]!;
  const { sid, node } = sinks[0]!;
  const asked = wants.packets.filter(({ message }) => message.t === 'want' && message.sid === sid);
  expect(asked.length).toBeGreaterThan(0);
  const mark = cluster.history.length;
  for (const { parts } of asked) {
    const where = { g: 0, m: 1, sid, gen: survivor.gen, seq: 1 };
    const message: Message = { t: 'lacking', ...where, v: version - 1 };
    cluster.deliver({ from: survivor.node, to: node, message, parts });
  }
  expect(cluster.sent('equation', mark)).toEqual([]);
  wants.release();
  cluster.settle();
  expect(cluster.sent('equation', mark).length).toBeGreaterThan(0);
  for (const { message } of cluster.sent('equation', mark))
    expect(message.lacking.map(([member]) => member)).toEqual([0]);
  expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([3, 4]);
});
