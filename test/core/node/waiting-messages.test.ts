// Waiting messages of a node are bounded in number and in bytes, and a bad one does not take the others with
// it.
import { afterEach, describe, expect, it } from 'vitest';
import { WaitingMessages } from '../../../src/core/node/waiting-messages.js';
import { WaitingPushes } from '../../../src/core/shard/waiting-pushes.js';
import { Meter } from '../../../src/core/shared/meter.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { WaitingBytes } from '../../../src/core/shared/waiting-bytes.js';
import { packItems } from '../../../src/protocol/items.js';
import type { Message, MessageOf } from '../../../src/protocol/messages.js';
import { Cluster, type ClusterOptions, kind, section } from '../harness.js';

/** Bytes of the list of sections, which count, too. */
const ITEM = 12;
const message = (id: number, bytes = 0): MessageOf<'pull'> => {
  const items = packItems('pull', [[0, 0, bytes]]);
  return { t: 'pull', epoch: 9, id, items };
};

describe('messages for a newer map', () => {
  const parked = (maxParked: number, maxParkedBytes: number) => {
    const waiting = new WaitingBytes(maxParkedBytes);
    return { waiting, all: new WaitingMessages({ ...DEFAULT_POLICY, maxParked }, waiting) };
  };
  const ids = (all: WaitingMessages) => all.takeAll().map((each) => (each.message as { id: number }).id);

  it('the oldest make room, in number and in bytes', () => {
    const few = parked(2, 1000);
    for (const id of [1, 2, 3]) few.all.add(7, message(id), [new Uint8Array(1)]);
    expect([few.waiting.used, ids(few.all), few.waiting.used]).toEqual([2 * (1 + ITEM), [2, 3], 0]);
    const small = parked(100, 2 * (4 + ITEM));
    for (const id of [1, 2, 3]) small.all.add(7, message(id), [new Uint8Array(2), new Uint8Array(2)]);
    expect([small.waiting.used, ids(small.all)]).toEqual([2 * (4 + ITEM), [2, 3]]);
    small.all.add(7, message(4), [new Uint8Array(2 * (4 + ITEM))]);
    expect([small.waiting.used, ids(small.all)]).toEqual([0, []]);
  });

  it('are kept without unknown fields, and count with their lists of sections', () => {
    const { waiting, all } = parked(10, 1 << 20);
    const items = packItems(
      'pull',
      Array.from({ length: 1000 }, () => [9, 9, 0]),
    );
    all.add(7, { ...message(1), items, more: 'x'.repeat(1000) } as MessageOf<'pull'>, []);
    expect(waiting.used).toBe(1000 * ITEM);
    expect(all.takeAll()[0]!.message).toEqual({ t: 'pull', epoch: 9, id: 1, items });
  });

  it('share the limit with whatever else waits on the node', () => {
    const { waiting, all } = parked(100, 12);
    const lines = new WaitingPushes({ policy: DEFAULT_POLICY, waiting, meter: new Meter() });
    lines.add(5, 1, new Uint8Array(5));
    lines.add(5, 2, new Uint8Array(5));
    lines.add(6, 1, new Uint8Array(4));
    // A quarter is not for pushes.
    lines.add(7, 1, new Uint8Array(1));
    expect([waiting.used, lines.clients()]).toEqual([9, [5, 6]]);
    all.add(7, message(1), [new Uint8Array(4)]);
    expect(ids(all)).toEqual([]);
    lines.shift(5);
    expect([waiting.used, lines.waiting(5)]).toEqual([4, false]);
    lines.clear();
    expect(waiting.used).toBe(0);
  });
});

describe('a node', () => {
  let cluster: Cluster;
  const start = (options: Partial<ClusterOptions> = {}) => {
    cluster = new Cluster({ k: 1, r: 1, spares: 1, ...options });
    return cluster.client;
  };
  afterEach(() => cluster.close());

  it('goes on with the other messages when one that waited for the map is broken', () => {
    start();
    const { map } = cluster;
    const owner = cluster.nodes[0]!;
    const next = { ...map, epoch: map.epoch + 1 };
    const pull = section([{ keys: [1] }], false);
    const ask = (id: number, parts: Uint8Array[]) =>
      cluster.deliver({
        from: cluster.client.id,
        to: owner.id,
        message: { ...message(id, pull.byteLength), epoch: next.epoch } as Message,
        parts,
      });
    ask(1, [pull]);
    // Two sections for one item.
    ask(2, [pull, pull]);
    ask(3, [pull]);
    const mark = cluster.history.length;
    cluster.deliver({ from: 0, to: owner.id, message: { t: 'map', map: next }, parts: [] });
    expect(cluster.sent('rows', mark).map((packet) => packet.message.id)).toEqual([1, 3]);
    expect(cluster.eventsNamed('message.refused')).toMatchObject([{ from: cluster.client.id, kind: 'pull' }]);
    expect(owner.node!.waiting.used).toBe(0);
  });

  it('does not take a broken invariant for a broken message', () => {
    start();
    const owner = cluster.nodes[0]!;
    const next = { ...cluster.map, epoch: cluster.map.epoch + 1 };
    const pull = section([{ keys: [1] }], false);
    const ask = { ...message(1, pull.byteLength), epoch: next.epoch } as Message;
    cluster.deliver({
      ...{ from: cluster.client.id, to: owner.id, message: ask },
      parts: [pull],
    });
    owner.node!.ownerAt(0, 0)!.onPull = () => {
      throw new TypeError('planted');
    };
    const map: Message = { t: 'map', map: next };
    expect(() => cluster.deliver({ from: 0, to: owner.id, message: map, parts: [] })).toThrow('planted');
  });

  it('does not take a broken invariant for a broken message of a node', () => {
    start();
    const owner = cluster.nodes[0]!;
    const [group] = cluster.map.groups;
    const epoch = cluster.map.epoch + 1;
    const { gen } = group!.data[0]!;
    const want = { t: 'want', g: 0, m: 0, sid: 1, gen, v: epoch, rid: 1 } as unknown as Message;
    cluster.deliver({ from: cluster.nodes[1]!.id, to: owner.id, message: want, parts: [] });
    owner.node!.ownerAt(0, 0)!.onWant = () => {
      throw new TypeError('planted');
    };
    const map: Message = {
      t: 'map',
      map: { ...cluster.map, epoch, groups: [{ ...group!, version: epoch }] },
    };
    expect(() => cluster.deliver({ from: 0, to: owner.id, message: map, parts: [] })).toThrow('planted');
  });

  it('maxParkedBytes: a pull over it is rejected, a push dropped and resent, all is given back', () => {
    const client = start({ policy: { maxParkedBytes: 5000, sinkStallMs: 60_000 } });
    client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    const answers = cluster.hold(kind('openAck'));
    cluster.crash(0);
    cluster.settle();
    const pushes = [1, 2, 3, 4].map(() => client.push({ 0: [{ keys: [1] }] }));
    const small = client.pull({ 0: [{ keys: [1] }] });
    const large = client.pull({ 0: [{ keys: Array.from({ length: 500 }, (_, i) => i) }] });
    cluster.settle();
    expect([small.done, large.error]).toEqual([false, 'LIMIT']);
    const { node } = cluster.nodeById(cluster.map.groups[0]!.data[0]!.node);
    expect(node!.waiting.used).toBeGreaterThan(2000);
    expect(node!.waiting.used).toBeLessThanOrEqual(5000);
    answers.release();
    cluster.settle();
    cluster.advance(20_000);
    expect(pushes.map(({ done, error }) => [done, error])).toEqual(Array(4).fill([true, undefined]));
    expect([small.done, cluster.read(0, 1), node!.waiting.used]).toEqual([true, 5, 0]);
  });

  it('maxParkedBytes: pushes that wait do not have pulls rejected', () => {
    const maxParkedBytes = 2 * section([{ keys: [1] }], true).byteLength;
    const client = start({ policy: { maxParkedBytes, sinkStallMs: 60_000 } });
    client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    const answers = cluster.hold(kind('openAck'));
    cluster.crash(0);
    cluster.settle();
    const pushes = Array.from({ length: 60 }, () => client.push({ 0: [{ keys: [1] }] }));
    const pulls = Array.from({ length: 10 }, () => client.pull({ 0: [{ keys: [1] }] }));
    cluster.settle();
    expect(pulls.map((pull) => pull.error)).toEqual(Array(10).fill(undefined));
    answers.release();
    cluster.settle();
    cluster.advance(20_000);
    for (const each of [...pushes, ...pulls]) expect(each).toMatchObject({ done: true, error: undefined });
  });

  it('gives back what waits for a shard that goes elsewhere', () => {
    const client = start({ spares: 2, policy: { sinkStallMs: 60_000 } });
    client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    const answers = cluster.hold(kind('openAck'));
    cluster.crash(0);
    cluster.settle();
    const push = client.push({ 0: [{ keys: [1] }] });
    client.pull({ 0: [{ keys: [1] }] });
    cluster.settle();
    const { map } = cluster;
    const group = map.groups[0]!;
    const actor = cluster.nodeById(group.data[0]!.node);
    expect(actor.node!.waiting.used).toBeGreaterThan(2000);
    const data = [{ node: 99, inc: 1, gen: map.epoch + 1, init: false }];
    const away = { ...map, epoch: map.epoch + 1, groups: [{ ...group, version: map.epoch + 1, data }] };
    cluster.deliver({ from: 0, to: actor.id, message: { t: 'map', map: away }, parts: [] });
    expect([actor.node!.waiting.used, push.done]).toEqual([0, false]);
    answers.drop();
  });
});
