/**
 * Pushes at an owner that serves. Rules 7 to 9: pushes of a client are taken in the order of their numbers, a
 * flush makes one batch, and a push is acknowledged when every sink has it.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { PUSH_WINDOW } from '../../../src/core/shared/dedup.js';
import { optimizerOf } from '../../../src/engine/optimizers.js';
import { Cluster, type ClusterOptions, DIM, kind, section, tableSpec } from '../harness.js';
import { acksIn, pushesIn, pushMessage } from '../packed.js';

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({ k: 2, r: 2, ...options });
  return cluster;
};
afterEach(() => cluster.close());

/** A push message that the test makes itself, without the client machine. */
const sendPush = (from: number, m: number, cseq: number, bytes: Uint8Array): void => {
  const message = pushMessage(cluster.map.epoch, [0, m, cseq], bytes.byteLength);
  cluster.send(from, cluster.nodes[m]!.id, message, [bytes]);
};
const acks = (since: number) => cluster.sent('pushAck', since).flatMap(({ message }) => acksIn(message));

describe('rule 9: durable is what every sink has', () => {
  it('acknowledges only after the last of two parities has the delta', () => {
    const { client, nodes } = start();
    const first = cluster.hold(kind('applied', { from: nodes[2]!.id }));
    const second = cluster.hold(kind('applied', { from: nodes[3]!.id }));
    const push = client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    expect([first.packets.length, second.packets.length, push.done]).toEqual([1, 1, false]);
    first.release();
    cluster.settle();
    expect(push.done).toBe(false);
    second.release();
    cluster.settle();
    expect(push).toMatchObject({ done: true, error: undefined });
    expect(cluster.read(0, 1)).toBe(1);
  });

  it('acknowledges up to the slower sink and no further', () => {
    const { client, nodes } = start();
    const slow = cluster.hold(kind('delta', { to: nodes[3]!.id }));
    const pushes = [1, 2, 3].map((key) => client.push({ 0: [{ keys: [key] }] }));
    cluster.settle();
    const [delta] = slow.packets;
    cluster.deliver(delta!);
    cluster.settle();
    expect(pushes.map((push) => push.done)).toEqual([true, false, false]);
    slow.packets.shift();
    slow.release();
    cluster.settle();
    expect(pushes.map((push) => push.done)).toEqual([true, true, true]);
  });

  it('shows a value to pulls before it is committed', () => {
    const { client } = start();
    const deltas = cluster.hold(kind('delta'));
    const push = client.push({ 0: [{ keys: [1], value: 3 }] });
    cluster.settle();
    expect([cluster.read(0, 1), push.done]).toEqual([3, false]);
    deltas.release();
  });

  it('an owner whose map lists no sink acknowledges; with requireRedundancy pushes wait', () => {
    for (const requireRedundancy of [false, true]) {
      start({ k: 1, r: 1, policy: { requireRedundancy } });
      cluster.crash(1);
      cluster.settle();
      expect(cluster.map.groups[0]!.sinks).toEqual([]);
      const push = cluster.client.push({ 0: [{ keys: [1] }] });
      cluster.settle();
      expect(push.done).toBe(!requireRedundancy);
      if (!requireRedundancy) cluster.close();
    }
    const waiting = [...cluster.client.tickets.values()].at(-1)!;
    cluster.restart(1);
    cluster.advance(600);
    expect(waiting).toMatchObject({ done: true, error: undefined });
  });
});

describe('rule 7: numbers', () => {
  it('is silent about a duplicate until the original is committed, then acknowledges it', () => {
    const { client } = start();
    const applied = cluster.hold(kind('applied'));
    const bytes = section([{ keys: [1], value: 5 }], true);
    client.push({ 0: [{ keys: [1], value: 5 }] });
    cluster.settle();
    const mark = cluster.history.length;
    sendPush(client.id, 0, 1, bytes);
    cluster.settle();
    expect(acks(mark)).toEqual([]);
    applied.release();
    cluster.settle();
    expect(acks(mark)).toEqual([[0, 0, 1]]);
    sendPush(client.id, 0, 1, bytes);
    cluster.settle();
    expect(acks(mark)).toEqual([
      [0, 0, 1],
      [0, 0, 1],
    ]);
    expect(cluster.read(0, 1)).toBe(5);
  });

  it('tells of every refusal, also when the answers to more pushes than it remembers were lost', () => {
    const { client } = start();
    const lost = cluster.lose(kind('pushAck'));
    const reserved = { 0: [{ keys: [2n ** 64n - 1n] }] };
    const pushes = Array.from({ length: 3 * PUSH_WINDOW }, (_, i) =>
      client.push(i % 3 === 2 ? { 0: [{ keys: [5] }] } : reserved),
    );
    cluster.settle();
    expect(cluster.sent('push').flatMap(({ message }) => pushesIn(message)).length).toBe(PUSH_WINDOW);
    lost();
    cluster.advance(2000);
    for (const [i, push] of pushes.entries())
      expect(push).toMatchObject({ done: true, error: i % 3 === 2 ? undefined : 'KEY_RESERVED' });
    expect(cluster.read(0, 5)).toBe(PUSH_WINDOW);
  });

  it('answers a number too high with Gap and applies nothing', () => {
    const { client } = start();
    client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    const stranger = cluster.addClient();
    cluster.settle();
    const mark = cluster.history.length;
    sendPush(stranger.id, 0, 3, section([{ keys: [1], value: 100 }], true));
    cluster.settle();
    expect(cluster.sent('gap', mark).map(({ to, message }) => [to, message.expected])).toEqual([
      [stranger.id, 1],
    ]);
    expect([cluster.read(0, 1), acks(mark)]).toEqual([1, []]);
  });

  it('applies pushes of one client once each, whatever arrives twice or in the wrong order', () => {
    const { client } = start();
    const held = cluster.hold(kind('push'));
    for (const value of [1, 2, 4]) client.push({ 0: [{ keys: [7], value }] });
    const [one, two, three] = held.packets;
    held.drop();
    for (const packet of [two, one, one, three, two, three]) {
      cluster.deliver(packet!);
      cluster.settle();
    }
    expect([cluster.read(0, 7), client.core.unacknowledged]).toEqual([7, 0]);
  });
});

describe('refusals', () => {
  it('consume their number as an empty delta, and later pushes go on', () => {
    const { client } = start();
    const mark = cluster.history.length;
    const bad = client.push({ 0: [{ keys: [1], width: DIM - 1 }] });
    const good = client.push({ 0: [{ keys: [1], value: 2 }] });
    cluster.settle();
    expect([bad.error, good.error, good.done]).toEqual(['DIM_MISMATCH', undefined, true]);
    expect(cluster.read(0, 1)).toBe(2);
    const ids = cluster
      .sent('delta', mark)
      .filter(({ to }) => to === cluster.nodes[2]!.id)
      .flatMap(({ message }) => message.ids);
    expect(ids).toEqual([
      [client.id, 1, 'DIM_MISMATCH'],
      [client.id, 2],
    ]);
  });

  it('are remembered: a retry gets the same refusal, also from a new owner', () => {
    const { client } = start({ spares: 1 });
    const reserved = section([{ keys: [2n ** 64n - 1n] }], true);
    const bad = client.push({ 0: [{ keys: [2n ** 64n - 1n] }] });
    cluster.settle();
    expect(bad.error).toBe('KEY_RESERVED');
    let mark = cluster.history.length;
    sendPush(client.id, 0, 1, reserved);
    cluster.settle();
    expect(acks(mark)).toEqual([[0, 0, 1, 'KEY_RESERVED']]);
    cluster.crash(0);
    cluster.settle();
    mark = cluster.history.length;
    const { node } = cluster.map.groups[0]!.data[0]!;
    expect(node).toBe(cluster.nodes[4]!.id);
    const message = pushMessage(cluster.map.epoch, [0, 0, 1], reserved.byteLength);
    cluster.send(client.id, node, message, [reserved]);
    cluster.settle();
    expect(acks(mark)).toEqual([[0, 0, 1, 'KEY_RESERVED']]);
  });

  it('names a learning rate that an optimizer cannot take, whoever sends it', () => {
    const { client } = start();
    cluster.createTables([tableSpec('f', optimizerOf('ftrl', 0.1), 2)]);
    cluster.settle();
    const bad = client.push({ 0: [{ keys: [1], table: 2, width: 2, lr: 0.5 }] });
    cluster.settle();
    expect(bad.error).toBe('BAD_ARGUMENT');
    const good = client.push({ 0: [{ keys: [1], table: 2, width: 2 }] });
    cluster.settle();
    expect([good.done, good.error]).toEqual([true, undefined]);
  });

  it('names each cause: an unknown table, a section that is no section', () => {
    const { client } = start();
    const unknown = client.push({ 1: [{ keys: [1], table: 9 }] });
    cluster.settle();
    expect(unknown.error).toBe('UNKNOWN_TABLE');
    const stranger = cluster.addClient();
    cluster.settle();
    const mark = cluster.history.length;
    sendPush(stranger.id, 1, 1, Uint8Array.of(1, 2, 3));
    cluster.settle();
    expect(acks(mark)).toEqual([[0, 1, 1, 'BAD_FRAME']]);
  });
});

describe('rule 8: batches', () => {
  it('puts everything since the last flush into one delta, with all ids', () => {
    const { client } = start();
    const other = cluster.addClient();
    cluster.settle();
    cluster.autoFlush = false;
    const mark = cluster.history.length;
    const pushes = [
      client.push({ 0: [{ keys: [1, 2], value: 1 }] }),
      other.push({ 0: [{ keys: [2, 3], value: 2 }] }),
      client.push({ 0: [{ keys: [2], value: 4 }] }),
    ];
    cluster.settle();
    expect([cluster.sent('delta', mark).length, pushes.some((push) => push.done)]).toEqual([0, false]);
    cluster.flush(0);
    cluster.settle();
    const deltas = cluster.sent('delta', mark);
    expect(deltas.map(({ message }) => message.seq)).toEqual([1, 1]);
    expect(deltas[0]!.message.ids).toEqual([
      [client.id, 1],
      [other.id, 1],
      [client.id, 2],
    ]);
    expect(pushes.every((push) => push.done)).toBe(true);
    // Each client gets one acknowledgement message for the whole batch.
    expect(cluster.sent('pushAck', mark).map(({ to, message }) => [to, acksIn(message).length])).toEqual([
      [client.id, 2],
      [other.id, 1],
    ]);
    expect([1, 2, 3].map((key) => cluster.read(0, key))).toEqual([1, 7, 2]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('resends a batch as it was, never regrouped', () => {
    const { client, nodes } = start();
    const stop = cluster.lose(kind('delta', { to: nodes[2]!.id }));
    const pushes = [1, 2].map((value) => client.push({ 0: [{ keys: [1], value }] }));
    cluster.settle();
    const first = cluster.sent('delta').filter(({ to }) => to === nodes[2]!.id);
    stop();
    const mark = cluster.history.length;
    cluster.advance(300);
    const again = cluster.sent('delta', mark).filter(({ to }) => to === nodes[2]!.id);
    expect(again.map(({ message, parts }) => [message.seq, message.ids, Buffer.from(parts[0]!)])).toEqual(
      first.map(({ message, parts }) => [message.seq, message.ids, Buffer.from(parts[0]!)]),
    );
    expect(first).toHaveLength(2);
    expect(pushes.every((push) => push.done)).toBe(true);
  });

  it('takes several tables in one push, all of them or none', () => {
    const { client } = start({ tables: [tableSpec('t'), tableSpec('u')] });
    const both = (width: number) => ({
      0: [
        { keys: [1], value: 1 },
        { table: 2, keys: [1, 5], value: 2, width },
      ],
    });
    const mark = cluster.history.length;
    const good = client.push(both(DIM));
    const bad = client.push(both(DIM + 1));
    cluster.settle();
    expect([good.done, good.error, bad.error]).toEqual([true, undefined, 'DIM_MISMATCH']);
    expect([cluster.read(0, 1), cluster.read(0, 1, 2), cluster.read(0, 5, 2)]).toEqual([1, 2, 2]);
    expect(cluster.sent('delta', mark)[0]!.message.seq).toBe(1);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('stops applying while too much is uncommitted, and goes on when acknowledgements come', () => {
    const { client } = start({ policy: { maxUncommittedBytes: 1 } });
    const applied = cluster.hold(kind('applied'));
    const pushes = [1, 2].map((value) => client.push({ 0: [{ keys: [1], value }] }));
    cluster.settle();
    expect(cluster.read(0, 1)).toBe(1);
    applied.release();
    cluster.settle();
    expect([cluster.read(0, 1), ...pushes.map((push) => push.done)]).toEqual([3, true, true]);
  });
});
