// Requests are served in turns of the event loop, of so many rows and bytes; what proves life is not.
import { afterEach, describe, expect, it } from 'vitest';
import type { Effect } from '../../../src/core/shared/outbox.js';
import { Turn } from '../../../src/core/shared/turn.js';
import { packItems } from '../../../src/protocol/items.js';
import { type PeerId, SCHEDULER } from '../../../src/protocol/map.js';
import type { Message, MessageOf } from '../../../src/protocol/messages.js';
import type { Role } from '../../../src/protocol/senders.js';
import { Cluster, type ClusterOptions, DIM, section } from '../harness.js';

/** Rows of a turn in these tests. */
const ROWS = 8;
const ROW_BYTES = DIM * 4;

let cluster: Cluster;
afterEach(() => cluster.close());

function start(policy: ClusterOptions['policy'] = {}) {
  cluster = new Cluster({ k: 1, r: 1, clients: 3, policy: { maxTurnRows: ROWS, ...policy } });
  const actor = cluster.nodeById(cluster.map.groups[0]!.data[0]!.node);
  const node = actor.node!;
  const [a, b] = cluster.clients.map(({ id }) => id);
  const { epoch } = cluster.map;
  const step = (from: PeerId, role: Role, message: Message, parts: Uint8Array[] = []) =>
    node.step({ kind: 'message', from, role, message, parts });
  let last = 0;
  return {
    node,
    a: a!,
    b: b!,
    step,
    pull: (from: PeerId, keys: number[]) => {
      const rows = section([{ keys }], false);
      const items = packItems('pull', [[0, 0, rows.byteLength]]);
      return step(from, 'client', { t: 'pull', epoch, id: ++last, items }, [rows]);
    },
    push: (from: PeerId, cseq: number, keys: number[]) => {
      const rows = section([{ keys }], true);
      const items = packItems('push', [[0, 0, cseq, rows.byteLength]]);
      return step(from, 'client', { t: 'push', epoch, items }, [rows]);
    },
    turn: () => node.step({ kind: 'turn' }),
    flush: () => node.step({ kind: 'flush' }),
  };
}

const keys = (count: number, first = 0): number[] => Array.from({ length: count }, (_, i) => first + i);
const sent = (effects: readonly Effect[]) =>
  effects.flatMap((effect) => (effect.kind === 'send' ? [effect] : []));
const kinds = (effects: readonly Effect[]) => sent(effects).map(({ message }) => message.t);
/** Rows that these effects answer with, by client. */
const answered = (effects: readonly Effect[]): [to: PeerId, rows: number][] =>
  sent(effects)
    .filter(({ message }) => message.t === 'rows')
    .map(({ to, parts }) => [to, parts[0]!.byteLength / ROW_BYTES]);

describe('a turn', () => {
  it('has so many rows of pulls, and the rest waits for the next one', () => {
    const { a, pull, turn, node } = start();
    const at = [0, 1, 2, 3, 4].map((i) => answered(pull(a, keys(4, 10 * i))).length);
    expect(at).toEqual([1, 1, 0, 0, 0]);
    expect(node.queuedBytes(a)).toBeGreaterThan(0);
    const { parkedRequests, parkedBytes } = node.telemetry(false);
    expect([parkedRequests, parkedBytes]).toEqual([3, node.queuedBytes(a)]);
    expect([turn(), turn()].map((effects) => answered(effects).length)).toEqual([2, 1]);
    expect([node.queuedBytes(a), node.needsTurn]).toEqual([0, true]);
    expect([kinds(turn()), node.needsTurn]).toEqual([[], false]);
  });

  it('has so many bytes of answers', () => {
    const { a, pull, turn } = start({ maxTurnRows: 1000, maxTurnBytes: 4 * ROW_BYTES });
    const at = [0, 1, 2, 3].map(() => answered(pull(a, keys(2))).length);
    expect(at).toEqual([1, 1, 0, 0]);
    expect(answered(turn()).length).toBe(2);
  });

  it('has so many rows of pushes', () => {
    const { a, push, turn, flush, node } = start();
    for (let cseq = 1; cseq <= 6; cseq++) push(a, cseq, keys(4));
    const counts = [];
    for (; node.needsTurn; turn()) counts.push(sent(flush()).flatMap(({ message }) => deltaIds(message)));
    expect(counts.map(({ length }) => length)).toEqual([2, 2, 2]);
  });

  it('has so many keys of pages', () => {
    const { a, step, turn } = start();
    const { epoch } = cluster.map;
    const page = { t: 'keys' as const, g: 0, m: 0, epoch, table: 1, order: 'slot' as const, from: 0 };
    const ask = (id: number) => kinds(step(a, 'client', { ...page, id, max: ROWS - 1 }));
    expect([ask(1), ask(2), ask(3)]).toEqual([['keysPage'], [], []]);
    expect([kinds(turn()), kinds(turn()), kinds(turn())]).toEqual([['keysPage'], ['keysPage'], []]);
  });

  it('is that of one request where the request is larger', () => {
    const { a, b, pull, push, turn, flush } = start();
    pull(b, keys(1));
    push(a, 1, keys(3 * ROWS));
    push(a, 2, keys(1));
    const ids = () => sent(flush()).flatMap(({ message }) => deltaIds(message));
    expect(ids()).toEqual([]);
    turn();
    expect(ids()).toEqual([1]);
    turn();
    expect(ids()).toEqual([2]);
  });

  it('asserts its bound', () => {
    const work = new Turn({ maxTurnRows: 10, maxTurnBytes: 100 });
    work.request();
    work.spend({ rows: 6, bytes: 6 });
    expect(work.fits({ rows: 5, bytes: 5 })).toBe(false);
    work.request();
    expect(() => work.spend({ rows: 5, bytes: 5 })).toThrow(/a turn is bounded/);
  });

  it('has only so many of the pushes that waited at a shard', () => {
    const { a, push, step, turn, flush, node } = start({ maxUncommittedBytes: 1 });
    push(a, 1, keys(4));
    const [delta] = sent(flush()).filter(({ message }) => message.t === 'delta');
    for (let cseq = 2; cseq <= 6; cseq++) {
      turn();
      push(a, cseq, keys(4));
    }
    turn();
    expect([node.waiting.count, kinds(flush())]).toEqual([5, []]);
    // The batch is committed, so the pushes may be applied.
    const { g, m, sid, gen } = delta!.message as MessageOf<'delta'>;
    step(delta!.to, 'node', { t: 'applied', g, m, sid, gen, applied: 1 });
    turn();
    expect([node.waiting.count, sent(flush()).flatMap(({ message }) => deltaIds(message))]).toEqual([
      3,
      [2, 3],
    ]);
  });
});

const deltaIds = (message: Message): number[] =>
  message.t === 'delta' ? message.ids.map(([, number]) => number as number) : [];

describe('proofs of life', () => {
  it('do not wait for requests: heartbeats, probes, questions and fences are answered when they come', () => {
    const { a, pull, step, node } = start();
    for (let i = 0; i < 50; i++) pull(a, keys(ROWS));
    const other = cluster.nodes.find(({ id }) => id !== node.id)!;
    const now = cluster.now + 1000;
    expect(kinds(node.step({ kind: 'tick', now }))).toEqual(['heartbeat']);
    expect(kinds(step(SCHEDULER, 'scheduler', { t: 'reach', node: other.id, inc: other.inc }))).toEqual([
      'reached',
    ]);
    expect(kinds(step(cluster.clients[2]!.id, 'client', { t: 'observe', id: 1 }))).toEqual(['observed']);
    expect(answered(node.step({ kind: 'turn' })).length).toBe(1);
  });

  it('of a sink do not wait for requests either: a delta is applied when it comes', () => {
    const { node } = start();
    const delta = cluster.hold(({ message }) => message.t === 'delta');
    cluster.client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    expect(delta.packets).toHaveLength(1);
    const [{ from, to, message, parts }] = delta.packets as [(typeof delta.packets)[0]];
    const sink = cluster.nodeById(to).node!;
    expect(sink).not.toBe(node);
    const items = packItems('pull', [[0, 0, 0]]);
    const pull = { t: 'pull' as const, epoch: cluster.map.epoch, id: 1, items };
    for (let i = 0; i < 20; i++)
      sink.step({
        kind: 'message',
        from: cluster.client.id,
        role: 'client',
        message: pull,
        parts: [new Uint8Array(0)],
      });
    const effects = sink.step({ kind: 'message', from, role: 'node', message, parts: [...parts] });
    expect(kinds(effects)).toContain('applied');
  });
});

describe('between clients', () => {
  it('turns are fair: one with few requests does not wait for one with many', () => {
    const { a, b, pull, turn } = start();
    for (let i = 0; i < 40; i++) pull(a, keys(4));
    pull(b, keys(4));
    pull(b, keys(4));
    expect(answered(turn()).map(([to]) => to)).toEqual([a, b]);
    expect(answered(turn()).map(([to]) => to)).toEqual([a, b]);
    expect(answered(turn()).map(([to]) => to)).toEqual([a, a]);
  });

  it('they are fair in rows, not in requests', () => {
    const { a, b, pull, turn } = start();
    pull(a, keys(ROWS));
    for (let i = 0; i < 10; i++) pull(a, keys(ROWS));
    for (let i = 0; i < 40; i++) pull(b, keys(1));
    const rows = new Map<PeerId, number>();
    for (let i = 0; i < 10; i++)
      for (const [to, count] of answered(turn())) rows.set(to, (rows.get(to) ?? 0) + count);
    expect(Math.abs(rows.get(a)! - rows.get(b)!)).toBeLessThanOrEqual(ROWS);
  });

  it('small requests go before large ones that came before them, and no large one waits for ever', () => {
    const { a, b, pull, turn } = start();
    for (let i = 0; i < 2; i++) pull(a, keys(5 * ROWS));
    expect(answered(pull(b, keys(2)))).toEqual([[b, 2]]);
    const c = cluster.clients[2]!.id;
    pull(c, keys(3 * ROWS));
    pull(b, keys(ROWS - 1));
    const turns = Array.from({ length: 14 }, () => answered(turn()));
    expect(turns.flatMap((rows, i) => rows.map((each) => [i, ...each]))).toEqual([
      [2, b, ROWS - 1],
      [5, a, 5 * ROWS],
      [8, c, 3 * ROWS],
      [13, a, 5 * ROWS],
    ]);
  });

  it('a client that comes late does not go before all others for what they had', () => {
    const { a, b, pull, turn } = start();
    for (let i = 0; i < 40; i++) pull(a, keys(4));
    for (let i = 0; i < 10; i++) turn();
    for (let i = 0; i < 10; i++) pull(b, keys(4));
    const had = [1, 2, 3].flatMap(() => answered(turn()).map(([to]) => to));
    expect(had.filter((to) => to === a).length).toBe(3);
  });
});

describe('requests that wait for a turn', () => {
  it('of one client keep their order', () => {
    const { a, pull, push, turn } = start();
    pull(a, keys(ROWS));
    push(a, 1, keys(2));
    push(a, 2, keys(2));
    const [rows] = sent([...pull(a, [1]), ...turn(), ...turn()]).filter(
      ({ message }) => message.t === 'rows',
    );
    expect(new Float32Array(rows!.parts[0]!.slice().buffer)[0]).toBe(2);
  });

  it('wait once, however often their client repeats them', () => {
    const { a, pull, turn, step, node } = start();
    pull(a, keys(ROWS));
    const rows = section([{ keys: keys(2) }], false);
    const items = packItems('pull', [[0, 0, rows.byteLength]]);
    const ask = (id: number, first?: number) =>
      step(a, 'client', { t: 'pull', epoch: cluster.map.epoch, id, items, ...(first && { first }) }, [rows]);
    for (const id of [10, 20]) ask(id);
    const bytes = node.queuedBytes(a);
    ask(11, 10);
    ask(21, 20);
    ask(22, 20);
    expect(node.queuedBytes(a)).toBe(bytes);
    // Other rows of the same request are no repeat.
    rows.set(section([{ keys: keys(2, 50) }], false));
    ask(12, 10);
    expect(node.queuedBytes(a)).toBeGreaterThan(bytes);
    expect(sent(turn()).map(({ message }) => (message as MessageOf<'rows'>).id)).toEqual([11, 22, 12]);
  });

  it('are kept as copies', () => {
    const { a, pull, turn, step } = start();
    pull(a, keys(ROWS));
    const rows = section([{ keys: [5] }], false);
    const items = packItems('pull', [[0, 0, rows.byteLength]]);
    step(a, 'client', { t: 'pull', epoch: cluster.map.epoch, id: 99, items }, [rows]);
    rows.fill(0xa5);
    expect(answered(turn())).toEqual([[a, 1]]);
  });

  it('are dropped when the link of their client is closed', () => {
    const { a, b, pull, turn, node } = start();
    for (let i = 0; i < 5; i++) for (const client of [a, b]) pull(client, keys(ROWS));
    node.step({ kind: 'gone', client: a });
    expect(node.queuedBytes(a)).toBe(0);
    const to = new Set<PeerId>();
    for (; node.needsTurn; ) for (const [client] of answered(turn())) to.add(client);
    expect([...to]).toEqual([b]);
  });

  it('leave nothing behind for those that come when all of them were dropped', () => {
    const { a, b, pull, turn, node } = start();
    for (let i = 0; i < 5; i++) pull(a, keys(ROWS));
    turn();
    turn();
    turn();
    node.step({ kind: 'gone', client: a });
    for (const client of [b, a, b, a]) pull(client, keys(ROWS));
    expect([1, 2, 3, 4].flatMap(() => answered(turn()).map(([to]) => to))).toEqual([b, a, b, a]);
  });

  it('are refused when they come, where they are malformed', () => {
    const { a, pull, step } = start();
    pull(a, keys(ROWS));
    const items = packItems('pull', [[0, 0, 8]]);
    const message = { t: 'pull' as const, epoch: cluster.map.epoch, id: 1, items };
    expect(() => step(a, 'client', message, [new Uint8Array(9)])).toThrow(/items of 8 bytes/);
  });

  it('are dropped behind one that the engine refuses, as its link is closed', () => {
    const { a, b, pull, step, turn, node } = start();
    pull(b, keys(ROWS));
    const page = { t: 'keys' as const, g: 0, m: 0, epoch: cluster.map.epoch, order: 'slot' as const };
    for (let id = 1; id <= 3; id++) step(a, 'client', { ...page, id, table: 99, from: 2 ** 40, max: 1 });
    pull(a, keys(1));
    const effects = turn();
    expect(effects.filter(({ kind }) => kind === 'hangUp').length).toBe(1);
    expect(effects.filter(({ kind }) => kind === 'event').length).toBe(1);
    expect([answered(effects), node.queuedBytes(a)]).toEqual([[], 0]);
  });

  it('count with their lists of sections', () => {
    const { a, b, pull, step, node } = start();
    for (let i = 0; i < 2; i++) pull(b, keys(ROWS));
    const items = packItems(
      'pull',
      Array.from({ length: 1000 }, () => [9, 9, 0]),
    );
    const message = { t: 'pull' as const, epoch: cluster.map.epoch, id: 7, items };
    step(a, 'client', message, [new Uint8Array(0)]);
    expect(node.queuedBytes(a)).toBe(items.byteLength);
    node.step({ kind: 'gone', client: a });
    expect(node.queuedBytes(a)).toBe(0);
  });

  it('are refused with LIMIT beyond maxReceivedBytes', () => {
    const { a, pull } = start({ maxReceivedBytes: 200 });
    const effects = keys(5).flatMap(() => pull(a, keys(ROWS)));
    expect(kinds(effects)).toContain('reject');
  });

  it('for a newer map wait for a turn when the map has come', () => {
    const { a, node, step } = start();
    const rows = section([{ keys: keys(ROWS) }], false);
    const items = packItems('pull', [[0, 0, rows.byteLength]]);
    const epoch = cluster.map.epoch + 1;
    for (let id = 1; id <= 3; id++) step(a, 'client', { t: 'pull', epoch, id, items }, [rows]);
    const map = { ...cluster.map, epoch };
    expect(kinds(step(SCHEDULER, 'scheduler', { t: 'map', map }))).not.toContain('rows');
    const counts = [1, 2, 3].map(() => answered(node.step({ kind: 'turn' })).length);
    expect(counts).toEqual([1, 1, 1]);
  });
});
