// Every limit of policy.ts is reached once: the node does what the policy says, and no push is lost or
// applied twice. Limits of one mechanism (recoveryRate, sinkStallMs, retryMs) are tested with that mechanism.
import { afterEach, describe, expect, it } from 'vitest';
import { Cluster, type ClusterOptions, kind } from '../harness.js';

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({ k: 2, r: 1, ...options });
  return cluster;
};
afterEach(() => cluster.close());

const LONG = 60_000;

/** Member 0 moves to the spare node and cannot become active, because a surviving sink does not answer. */
function stuckTakeover(options: Partial<ClusterOptions>) {
  const { client } = start({ spares: 1, ...options });
  const first = client.push({ 0: [{ keys: [1] }] });
  cluster.settle();
  expect(first.done).toBe(true);
  const answers = cluster.hold(kind('openAck'));
  cluster.crash(0);
  cluster.settle();
  return { client, answers };
}

describe('limits of the core', () => {
  it('maxParked: a pull too many is rejected with LIMIT, the others are answered', () => {
    const { client, answers } = stuckTakeover({ policy: { maxParked: 2, sinkStallMs: LONG } });
    const pulls = [1, 2, 3].map(() => client.pull({ 0: [{ keys: [1] }] }));
    cluster.settle();
    expect(pulls.map((pull) => pull.error)).toEqual([undefined, undefined, 'LIMIT']);
    answers.release();
    cluster.settle();
    cluster.advance(1000);
    expect(pulls.slice(0, 2).map((pull) => pull.done)).toEqual([true, true]);
    expect(cluster.read(0, 1)).toBe(1);
  });

  it('maxHeldPushes and maxParked: pushes that are dropped are sent again, and each is applied once', () => {
    const { client, answers } = stuckTakeover({
      clients: 3,
      policy: { maxHeldPushes: 1, maxParked: 2, sinkStallMs: LONG },
    });
    const pushes = cluster.clients.flatMap((each) => [1, 2, 3].map(() => each.push({ 0: [{ keys: [1] }] })));
    cluster.settle();
    expect(pushes.some((push) => push.done)).toBe(false);
    answers.release();
    cluster.settle();
    cluster.advance(LONG);
    expect(pushes.map((push) => [push.done, push.error])).toEqual(pushes.map(() => [true, undefined]));
    expect(cluster.read(0, 1)).toBe(1 + pushes.length);
    expect(client.core.unacknowledged).toBe(0);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('parkedPullMs: a pull that waits too long is answered TIMEOUT', () => {
    const { client } = stuckTakeover({ policy: { parkedPullMs: 500, sinkStallMs: LONG } });
    const pull = client.pull({ 0: [{ keys: [1] }] });
    cluster.settle();
    expect(pull.error).toBeUndefined();
    cluster.advance(1500);
    expect(pull.error).toBe('TIMEOUT');
  });

  it('maxUncommittedBytes: an owner applies no more until its sinks answer, and then everything once', () => {
    const { client } = start({ policy: { maxUncommittedBytes: 100 } });
    const answers = cluster.hold(kind('applied'));
    const pushes = Array.from({ length: 10 }, () => client.push({ 0: [{ keys: [1] }] }));
    cluster.settle();
    const deltas = cluster.sent('delta').length;
    expect(cluster.read(0, 1)).toBeLessThan(10);
    answers.release();
    cluster.settle();
    cluster.advance(1000);
    expect(pushes.every((push) => push.done && push.error === undefined)).toBe(true);
    expect(cluster.sent('delta').length).toBeGreaterThan(deltas);
    expect(cluster.read(0, 1)).toBe(10);
  });

  it('recoveryWindow and recoveryChunk: a shard comes back one block at a time', () => {
    const { client } = start({ spares: 1, policy: { recoveryWindow: 1, recoveryChunk: 1 } });
    const keys = Array.from({ length: 1500 }, (_, i) => i);
    client.push({ 0: [{ keys }] });
    cluster.settle();
    const mark = cluster.history.length;
    cluster.crash(0);
    cluster.advance(LONG);
    const recovers = cluster.sent('recover', mark);
    expect(recovers.length).toBeGreaterThan(3);
    for (const { parts } of recovers) expect(parts[0]!.byteLength).toBe(8);
    expect(cluster.owner(0).complete).toBe(true);
    expect([0, 700, 1499].map((key) => cluster.read(0, key))).toEqual([1, 1, 1]);
  });

  it('moveRate: planned moves of a node share it, what restores redundancy does not wait for it', () => {
    const BLOCK = 4096;
    const { client } = start({ groups: 2, spares: 1, policy: { moveRate: 10 * BLOCK, recoveryChunk: 1 } });
    const keys = Array.from({ length: 4000 }, (_, i) => i);
    for (const g of [0, 1]) client.push({ 0: [{ keys }] }, g);
    cluster.advance(600);
    const node = cluster.nodes[3]!;
    for (const g of [0, 1]) cluster.stepScheduler({ kind: 'move', g, member: 0, node: node.id });
    cluster.settle();
    const mark = cluster.history.length;
    cluster.advance(3000);
    const wanted = cluster.sent('want', mark).filter(({ from }) => from === node.id);
    const blocks = wanted.reduce((sum, { parts }) => sum + parts[0]!.byteLength / 8, 0);
    expect(blocks).toBeGreaterThan(5);
    expect(blocks).toBeLessThanOrEqual(31);
    // The parity that takes the place of a lost one is complete long before.
    cluster.crash(2);
    cluster.advance(900);
    const parities = cluster.map.groups.map(({ id: g, sinks }) => ({
      g,
      sink: sinks.find((s) => s.kind === 'P'),
    }));
    for (const { g, sink } of parities) {
      expect(sink, `parity of group ${g}`).toBeDefined();
      expect(cluster.nodeById(sink!.node).node!.sinkAt(sink!.sid)!.complete).toBe(true);
    }
  });

  it('requireRedundancy: without a sink pushes wait, and are applied once when one comes', () => {
    const { client } = start({ k: 1, r: 1, policy: { requireRedundancy: true } });
    cluster.crash(1);
    cluster.settle();
    const push = client.push({ 0: [{ keys: [1] }] });
    cluster.advance(1000);
    expect(push.done).toBe(false);
    cluster.restart(1);
    cluster.advance(LONG);
    expect(push).toMatchObject({ done: true, error: undefined });
    expect(cluster.read(0, 1)).toBe(1);
  });
});
