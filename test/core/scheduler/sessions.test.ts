// Rule 31: sessions of clients end, in the order of the stream, and nothing of an ended one is taken any
// more.
import { afterEach, describe, expect, it } from 'vitest';
import { Dedup } from '../../../src/core/shared/dedup.js';
import { DEFAULT_SCHEDULER_POLICY } from '../../../src/core/shared/policy.js';
import { rangesBetween } from '../../../src/core/shared/session-ranges.js';
import type { Message, MessageOf } from '../../../src/protocol/messages.js';
import { Cluster, type ClusterOptions, kind } from '../harness.js';
import { acksIn } from '../packed.js';
import { FOLLOWED, SPEC } from './book.js';

const { reconnectMs } = DEFAULT_SCHEDULER_POLICY;
const SESSION_MS = 3000;
const CHECK_MS = 1000;

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({
    k: 1,
    r: 2,
    spares: 1,
    clients: 2,
    policy: { sessionCheckMs: CHECK_MS },
    schedulerPolicy: { sessionMs: SESSION_MS },
    ...options,
  });
  return cluster;
};
afterEach(() => cluster.close());

/** Clients in the tables of the owner and of both sinks. */
const remembered = () => [
  cluster.owner(0).clients(),
  ...[0, 1].map((index) => cluster.sink(index).dedupOf(0).clients()),
];
const both = () => cluster.clients.map(({ id }) => id);
const detach = (id: number) =>
  cluster.stepScheduler({ kind: 'message', from: id, role: 'client', message: { t: 'detach' } });
const hangUp = (index: number, link = 1000 + index) =>
  cluster.stepScheduler({ kind: 'closed', peer: cluster.clients[index]!.id, inc: 0, link });
/** The scheduler's answer to a client that comes (back). */
const attach = (link: number, message: { id?: number; job?: string }) => {
  cluster.stepScheduler({ kind: 'attach', link, message: { t: 'attach', ...message } });
  return cluster.replies.filter((reply) => reply.link === link).at(-1)?.message;
};
const open = () => [...cluster.disk.sessions.keys()];

describe('the end of a session', () => {
  it('is durable before its client hears of it', () => {
    start();
    pushBoth();
    const [, goes] = both();
    hangUp(1);
    cluster.slowDisk = true;
    cluster.advance(SESSION_MS * 2);
    // A scheduler that is killed now knows the session as an open one.
    expect(open()).toContain(goes);
    expect(attach(77, { id: goes! })).toBeUndefined();
    cluster.slowDisk = false;
    cluster.persist();
    expect(open()).not.toContain(goes);
    expect(attach(77, { id: goes! })).toEqual({ t: 'stale', code: 'SESSION_EXPIRED' });
  });
});

describe('the lease of a worker', () => {
  it('is not lost when an older one of its connections closes late', () => {
    start();
    const { id } = cluster.clients[0]!;
    const ask = (message: MessageOf<'openDataset'> | MessageOf<'acquire'>) =>
      cluster.stepScheduler({ kind: 'message', from: id, role: 'client', message });
    const leases = () => [...(cluster.disk.datasets[0]?.open.values() ?? [])].map(({ worker }) => worker);
    ask({ t: 'openDataset', id: 1, name: 'd', spec: SPEC });
    ask({ t: 'acquire', id: 2, name: 'd', clock: 0 });
    expect(leases()).toEqual([id]);
    expect(attach(77, { id })).toMatchObject({ t: 'welcome', id });
    hangUp(0);
    cluster.advance(SESSION_MS / 2);
    expect(leases()).toEqual([id]);
    hangUp(0, 77);
    cluster.advance(SESSION_MS / 2);
    expect(leases()).toEqual([0]);
  });

  it('ends with its goodbye: one that waited for a range gets none, and what it held is soon free', () => {
    start();
    const [stays, goes] = both();
    const ask = (from: number | undefined, message: Message) =>
      cluster.stepScheduler({ kind: 'message', from: from!, role: 'client', message });
    const leases = () => [...(cluster.disk.datasets[0]?.open.values() ?? [])].map(({ worker }) => worker);
    ask(goes, { t: 'openDataset', id: 1, name: 'd', spec: FOLLOWED });
    ask(goes, { t: 'acquire', id: 2, name: 'd', clock: 0 });
    detach(goes!);
    hangUp(1);
    ask(stays, { t: 'extendDataset', id: 3, name: 'd', sizes: [40, 0] });
    expect(leases()).toEqual([]);
    ask(stays, { t: 'acquire', id: 4, name: 'd', clock: 0 });
    expect(leases()).toEqual([stays]);
    detach(stays!);
    cluster.advance(SESSION_MS / 2);
    expect(leases()).toEqual([0]);
  });
});

function pushBoth() {
  for (const client of cluster.clients) client.push({ 0: [{ keys: [1] }] });
  cluster.settle();
}

describe('an ended session', () => {
  it('is forgotten by the owner and by every sink; the others are not', () => {
    start();
    pushBoth();
    const [stays, goes] = both();
    expect(remembered()).toEqual([both(), both(), both()]);
    detach(goes!);
    cluster.advance(CHECK_MS);
    expect(remembered()).toEqual([[stays], [stays], [stays]]);
    expect(cluster.read(0, 1)).toBe(2);
  });

  it('a copy of its first push that comes late is not applied, at the owner or at the next one', () => {
    start();
    pushBoth();
    const { id } = cluster.clients[1]!;
    const late = cluster.sent('push').find(({ from }) => from === id)!;
    detach(id);
    cluster.advance(CHECK_MS);
    const again = () => {
      const mark = cluster.history.length;
      cluster.send(id, cluster.map.groups[0]!.data[0]!.node, { ...late.message, epoch: 0 }, late.parts);
      cluster.settle();
      return cluster.sent('pushAck', mark).map(({ message }) => acksIn(message));
    };
    expect(again()).toEqual([[[0, 0, 1, 'SESSION_EXPIRED']]]);
    cluster.crash(0);
    cluster.settle();
    expect(again()).toEqual([[[0, 0, 1, 'SESSION_EXPIRED']]]);
    expect(cluster.read(0, 1)).toBe(2);
  });

  it('is taken back with the batch that ended it, and ended again by the next owner', () => {
    start();
    pushBoth();
    const [stays, goes] = both();
    // Only one of the sinks gets it, so the agreed position is before it.
    const lost = cluster.lose(kind('delta', { to: cluster.map.groups[0]!.sinks[1]!.node }));
    detach(goes!);
    cluster.advance(300);
    cluster.advance(CHECK_MS);
    expect(remembered()).toEqual([[stays], [stays], both()]);
    cluster.crash(0);
    lost();
    cluster.settle();
    expect(remembered()).toEqual([both(), both(), both()]);
    cluster.advance(2 * CHECK_MS);
    expect(remembered()).toEqual([[stays], [stays], [stays]]);
  });

  it('fails what its client still wants, on every shard, at once', () => {
    start({ k: 2 });
    const [, client] = cluster.clients;
    client!.push({ 0: [{ keys: [1] }], 1: [{ keys: [1] }] });
    cluster.settle();
    const stop = cluster.lose(kind('push', { from: client!.id }));
    const tickets = [client!.push({ 0: [{ keys: [1] }] }), client!.push({ 1: [{ keys: [1] }] })];
    detach(client!.id);
    cluster.advance(CHECK_MS);
    stop();
    client!.step({ kind: 'peerUp', peer: cluster.map.groups[0]!.data[1]!.node });
    cluster.settle();
    expect(tickets.map(({ error, released }) => [error, released])).toEqual([
      ['SESSION_EXPIRED', true],
      ['SESSION_EXPIRED', true],
    ]);
    expect(client!.push({ 0: [{ keys: [1] }] }).error).toBe('SESSION_EXPIRED');
  });

  it('nodes ask at a bounded rate, and not for tables without clients', () => {
    start();
    cluster.advance(10 * CHECK_MS);
    expect(cluster.sent('sessions')).toEqual([]);
    pushBoth();
    const mark = cluster.history.length;
    cluster.advance(10 * CHECK_MS);
    expect(cluster.sent('sessions', mark).length).toBeGreaterThan(5);
    expect(cluster.sent('sessions', mark).length).toBeLessThanOrEqual(10);
  });
});

describe('the scheduler', () => {
  it('ends a session whose client stays away; who is connected or comes back in time keeps it', () => {
    start({ clients: 3 });
    const [a, b, c] = both();
    hangUp(0);
    hangUp(1);
    cluster.advance(SESSION_MS - 600);
    expect(attach(2000, { id: b! })).toMatchObject({ t: 'welcome', id: b });
    // The end of an older connection says nothing about the newer one.
    hangUp(1);
    cluster.advance(SESSION_MS);
    expect(open()).toEqual([b, c]);
    expect(attach(2001, { id: a! })).toEqual({ t: 'stale', code: 'SESSION_EXPIRED' });
    hangUp(1, 2000);
    cluster.advance(SESSION_MS + 600);
    expect(open()).toEqual([c]);
  });

  it('starts all leases again after a restart', () => {
    start();
    hangUp(1);
    cluster.advance(SESSION_MS - 300);
    cluster.crashScheduler();
    cluster.now += 10 * SESSION_MS;
    cluster.restartScheduler();
    expect(attach(2000, { id: cluster.client.id })).toMatchObject({ t: 'welcome' });
    cluster.advance(SESSION_MS - 300);
    expect(open()).toEqual(both());
    cluster.advance(900);
    expect(open()).toEqual([cluster.client.id]);
  });

  it('does not count the time in which it was stopped', () => {
    start();
    hangUp(1);
    cluster.now += 10 * SESSION_MS;
    cluster.advance(300);
    expect(open()).toEqual(both());
  });

  it('tells nobody of an end that is not durable', () => {
    start();
    pushBoth();
    cluster.slowDisk = true;
    detach(cluster.clients[1]!.id);
    cluster.advance(2 * CHECK_MS);
    expect(remembered()).toEqual([both(), both(), both()]);
    cluster.persist();
    cluster.settle();
    expect(remembered()[0]).toEqual([cluster.client.id]);
  });

  it('knows no session of another job, and lets nobody use the id of a node', () => {
    start();
    const [id] = both();
    const stale = { t: 'stale', code: 'SESSION_EXPIRED' };
    expect(attach(2000, { id: id!, job: 'test' })).toMatchObject({ t: 'welcome', id });
    expect(attach(2000, { id: id!, job: 'another' })).toEqual(stale);
    expect(attach(2000, { id: cluster.nodes[0]!.id })).toEqual(stale);
    expect(attach(2000, { id: 999 })).toEqual(stale);
    const { name, host, inc } = cluster.nodes[0]!;
    const address = `${name}:1`;
    const message = { t: 'join' as const, name, host, address, standby: false, inc, id: 1, job: 'another' };
    cluster.stepScheduler({ kind: 'join', link: 2000, message });
    expect(cluster.replies.at(-1)?.message).toEqual({ t: 'stale', code: 'STALE_NODE' });
  });

  it('ends, at the limit, that of the client that is away for longest', () => {
    start({ schedulerPolicy: { maxSessions: 3, sessionMs: 600_000 } });
    const [first, second] = both();
    expect(attach(2000, {})).toMatchObject({ t: 'welcome' });
    hangUp(1);
    hangUp(0);
    // A client that has just lost its connection may be back in a moment.
    expect(attach(2001, {})).toEqual({ t: 'stale', code: 'LIMIT' });
    cluster.advance(reconnectMs + 300);
    expect(attach(2002, {})).toMatchObject({ t: 'welcome' });
    expect(attach(2003, { id: second! })).toEqual({ t: 'stale', code: 'SESSION_EXPIRED' });
    expect(attach(2004, { id: first! })).toMatchObject({ t: 'welcome', id: first });
    expect(attach(2005, {})).toEqual({ t: 'stale', code: 'LIMIT' });
    expect(open()).not.toContain(second);
  });

  it('refuses further clients at the limit, and takes one when another has gone', () => {
    start({ schedulerPolicy: { maxSessions: 3 } });
    expect(attach(2000, {})).toMatchObject({ t: 'welcome' });
    expect(attach(2001, {})).toEqual({ t: 'stale', code: 'LIMIT' });
    detach(cluster.client.id);
    expect(attach(2002, {})).toMatchObject({ t: 'welcome' });
    expect(attach(2003, {})).toEqual({ t: 'stale', code: 'LIMIT' });
  });
});

describe('tombstones', () => {
  const table = (...clients: number[]) => Dedup.from(clients.map((client) => [client, 3, []]));

  const between = (dedup: Dedup, next: number, open: number[]) => dedup.tombstones(rangesBetween(open, next));

  it('are nothing as long as nobody here has ended, else the ranges around those who have', () => {
    expect(between(table(5, 9), 10, [3, 5, 9])).toEqual([]);
    expect(between(table(5, 9), 9, [5])).toEqual([]);
    expect(between(table(5, 9), 12, [3, 9, 10])).toEqual([[4, 8, 'ENDED']]);
    expect(between(table(5), 9, [])).toEqual([[1, 8, 'ENDED']]);
  });

  it('are a range without clients here when it joins others', () => {
    const dedup = table(2, 8);
    for (const id of between(dedup, 9, [1, 5])) dedup.record(id);
    expect(dedup.size).toBe(2);
    expect(dedup.tombstones([[20, 30]])).toEqual([]);
    expect(between(dedup, 12, [1])).toEqual([[2, 11, 'ENDED']]);
    // The new range only makes the last one longer.
    expect(between(dedup, 12, [1, 5])).toEqual([]);
    dedup.record([2, 11, 'ENDED']);
    expect([dedup.size, dedup.hasEnded(5)]).toEqual([1, true]);
  });

  it('join into few ranges, whatever their order, and are not made twice', () => {
    const dedup = table(2, 5, 9);
    for (const id of between(dedup, 10, [1, 5])) dedup.record(id);
    expect(dedup.entries()).toEqual([
      [2, 4, 'ENDED'],
      [6, 9, 'ENDED'],
      [5, 3, []],
    ]);
    expect(between(dedup, 10, [1, 5])).toEqual([]);
    dedup.record([20, 1]);
    expect(between(dedup, 22, [1, 5, 21])).toEqual([[6, 20, 'ENDED']]);
    for (const id of between(dedup, 22, [1, 21])) dedup.record(id);
    expect(dedup.entries()).toEqual([[2, 20, 'ENDED']]);
    expect([1, 2, 20, 21].map((id) => dedup.hasEnded(id))).toEqual([false, true, true, false]);
    expect(dedup.copy().entries()).toEqual(dedup.entries());
  });

  it('agree with a plain set of ids, whatever comes in which order', () => {
    let state = 12345;
    const below = (n: number) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % n;
    };
    for (let round = 0; round < 200; round++) {
      const dedup = new Dedup();
      const ended = new Set<number>();
      const known = new Set<number>();
      for (let step = 0; step < 30; step++) {
        const first = 1 + below(60);
        if (below(2) === 0) {
          if (!ended.has(first)) {
            dedup.record([first, 1]);
            known.add(first);
          }
          continue;
        }
        const last = first + below(8);
        dedup.record([first, last, 'ENDED']);
        for (let id = first; id <= last; id++) {
          ended.add(id);
          known.delete(id);
        }
        const ids = Array.from({ length: 70 }, (_, id) => id);
        expect(ids.filter((id) => dedup.hasEnded(id))).toEqual(ids.filter((id) => ended.has(id)));
        expect(dedup.clients().sort((a, b) => a - b)).toEqual([...known].sort((a, b) => a - b));
        const ranges = dedup.entries().filter((entry) => entry[2] === 'ENDED') as unknown as number[][];
        const beginnings = [...ended].filter((id) => !ended.has(id - 1));
        expect(ranges.map(([from]) => from)).toEqual(beginnings.sort((a, b) => a - b));
      }
    }
  });

  it('stay few over thousands of clients that come and go', () => {
    const dedup = new Dedup();
    let open: number[] = [];
    for (let id = 1; id < 5000; id++) {
      // Half of them never come here; one in a hundred stays for long.
      open = [...open.filter((other) => other > id - (other % 100 === 0 ? 1000 : 5)), id];
      if (id % 2 === 0) dedup.record([id, 1]);
      if (id % 7 === 0) for (const ended of between(dedup, id + 1, open)) dedup.record(ended);
    }
    expect(dedup.entries().length).toBeLessThan(3 * open.length);
    expect(dedup.size).toBe(dedup.entries().length);
  });
});
