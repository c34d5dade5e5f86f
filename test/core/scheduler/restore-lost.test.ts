/** A running job that has lost a shard for good loads it from a checkpoint, and the others go on. */
import { afterEach, describe, expect, it } from 'vitest';
import { optimizerOf } from '../../../src/engine/optimizers.js';
import type { TablePolicy } from '../../../src/engine/policies.js';
import type { MessageOf } from '../../../src/protocol/messages.js';
import type { SavePlan } from '../../../src/protocol/saving.js';
import { Cluster, type ClusterOptions, kind, tableSpec } from '../harness.js';

const PLAN: SavePlan = { url: 'memory', everyMs: 0, keep: 3, rate: 0, kind: 'full job' };
let cluster: Cluster;
afterEach(() => cluster.close());

function tell(message: Parameters<Cluster['send']>[2]): void {
  cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message });
  cluster.settle();
}

function push(items: Parameters<Cluster['client']['push']>[0]) {
  const ticket = cluster.client.push(items);
  cluster.settle();
  return ticket;
}

let nextId = 1;

/** Asks for a checkpoint; what the scheduler answers. */
function reload(id = nextId++, number = 1): MessageOf<'restoreReply'> {
  const draft = cluster.place.manifests.find((each) => each.number === number)!;
  const from = cluster.client.id;
  cluster.stepScheduler({ kind: 'restoreLost', from, id, url: 'memory', agoMs: 500, checkpoint: draft });
  cluster.settle();
  return cluster.sent('restoreReply').at(-1)!.message;
}

/** Rows 1 of two shards are in checkpoint 1 with 5; shard 0 is then pushed to, and lost. */
function lost(options: Partial<ClusterOptions> = {}): void {
  nextId = 1;
  cluster = new Cluster({ k: 2, r: 1, spares: 1, ...options });
  tell({ t: 'setPlan', id: 1, name: 'all', plan: PLAN });
  push({ 0: [{ keys: [1], value: 5 }], 1: [{ keys: [1], value: 5 }] });
  tell({ t: 'saveNow', id: 2, name: 'all' });
  cluster.advance(600);
  expect(cluster.place.manifests.length).toBe(1);
  push({ 0: [{ keys: [1], value: 70 }], 1: [{ keys: [1], value: 70 }] });
  push({ 0: [{ keys: [1], value: 700 }] });
  expect(cluster.read(0, 1)).toBe(775);
  cluster.crash(0, { noticed: false });
  cluster.crash(2, { noticed: false });
  cluster.notice(0);
  cluster.notice(2);
  cluster.settle();
  cluster.restart(0);
  cluster.restart(2);
  cluster.advance(3000);
  expect(cluster.scheduler!.status()).toMatchObject({ redundancy: 'lost', unrecoverable: [{ g: 0, m: 0 }] });
}

describe('restore --only-lost', () => {
  it('takes a table whose rate has changed since, but no state that was made with another rate', () => {
    lost({ tables: [tableSpec(), tableSpec('f', optimizerOf('ftrl', 0.5))] });
    const [saved] = cluster.place.manifests;
    const withRate = (name: string) =>
      saved!.tables.map((table) =>
        table.name === name ? { ...table, optimizer: { ...table.optimizer, lr: 0.25 } } : table,
      );
    const { tables } = saved!;
    saved!.tables = withRate('f');
    expect(reload()).toMatchObject({ code: 'BAD_ARGUMENT', message: expect.stringContaining('table "f"') });
    saved!.tables = tables;
    saved!.tables = withRate('t');
    expect(reload()).toMatchObject({ number: 1, shards: [['embedding', 0, 1]] });
  });

  it('brings back what the checkpoint had, and goes on with the numbers of its clients', () => {
    lost();
    expect(push({ 0: [{ keys: [1], value: 1 }] }).error).toBe('UNRECOVERABLE');
    expect(reload()).toMatchObject({ number: 1, agoMs: 500, shards: [['embedding', 0, 1]] });
    expect(cluster.map.groups[0]!.data[0]).toMatchObject({ restore: true, rewound: true });
    cluster.advance(5000);
    expect(cluster.eventsNamed('restore.done')).toMatchObject([{ number: 1 }]);
    expect(cluster.scheduler!.status()).toMatchObject({ redundancy: 'full', unrecoverable: [] });
    expect(cluster.read(0, 1)).toBe(5);
    expect(cluster.read(1, 1)).toBe(75);
    expect(push({ 0: [{ keys: [1], value: 2000 }], 1: [{ keys: [1], value: 2000 }] }).error).toBeUndefined();
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([2005, 2075]);
    cluster.checkParities();
    const holder = cluster.map.groups[0]!.data[0]!.node;
    const index = cluster.nodes.findIndex(({ id }) => id === holder);
    cluster.crash(index);
    cluster.restart(index);
    cluster.advance(5000);
    expect(push({ 0: [{ keys: [1], value: 1 }] }).done).toBe(true);
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([2006, 2075]);
  });

  it('goes on with the numbers of its clients where the next owner dies before they push', () => {
    lost();
    reload();
    cluster.advance(5000);
    const holder = cluster.map.groups[0]!.data[0]!.node;
    const index = cluster.nodes.findIndex(({ id }) => id === holder);
    cluster.crash(index);
    cluster.restart(index);
    cluster.advance(5000);
    expect(cluster.map.groups[0]!.data[0]!.node).not.toBe(holder);
    expect(push({ 0: [{ keys: [1], value: 2000 }] })).toMatchObject({ done: true, error: undefined });
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([2005, 75]);
  });

  it('applies nothing twice that was not acknowledged when the checkpoint was taken', () => {
    nextId = 1;
    cluster = new Cluster({ k: 2, r: 1, spares: 1 });
    tell({ t: 'setPlan', id: 1, name: 'all', plan: PLAN });
    const free = cluster.lose(kind('pushAck'));
    const ticket = push({ 0: [{ keys: [1], value: 5 }] });
    tell({ t: 'saveNow', id: 2, name: 'all' });
    cluster.advance(300);
    expect(cluster.place.manifests.length).toBe(1);
    expect(ticket.done).toBe(false);
    cluster.crash(0, { noticed: false });
    cluster.crash(2, { noticed: false });
    cluster.notice(0);
    cluster.notice(2);
    free();
    cluster.restart(0);
    cluster.restart(2);
    cluster.settle();
    expect(cluster.scheduler!.status().redundancy).toBe('lost');
    reload();
    cluster.advance(5000);
    expect(cluster.read(0, 1)).toBe(5);
  });

  it('is answered the same when the question comes again, and says when nothing is lost', () => {
    lost();
    const first = reload(7);
    expect(reload(7)).toEqual(first);
    cluster.advance(5000);
    expect(reload(8)).toMatchObject({ shards: [] });
    expect(cluster.eventsNamed('restore.lost').length).toBe(1);
    expect(cluster.read(0, 1)).toBe(5);
  });

  it('waits for one that is under way, and begins again with another one where it cannot go on', () => {
    lost();
    const held = cluster.hold(kind('shardLoaded'));
    reload();
    cluster.advance(900);
    expect(reload()).toMatchObject({ code: 'NOT_READY' });
    held.drop();
    cluster.advance(3000);
    expect(cluster.read(0, 1)).toBe(5);

    cluster.close();
    lost();
    cluster.place.fetchFails = 'BAD_CHECKPOINT';
    reload();
    cluster.advance(900);
    expect(cluster.scheduler!.status().restoring).toMatchObject({ onlyLost: true, failure: {} });
    cluster.place.fetchFails = undefined;
    expect(reload()).toMatchObject({ shards: [['embedding', 0, 1]] });
    cluster.advance(3000);
    expect(cluster.read(0, 1)).toBe(5);
  });

  it('goes on after a restart of the scheduler, and where the owner died that loads', () => {
    lost();
    const held = cluster.hold(kind('shardLoaded'));
    reload();
    cluster.advance(900);
    cluster.crashScheduler();
    cluster.restartScheduler();
    const holder = cluster.map.groups[0]!.data[0]!.node;
    const index = cluster.nodes.findIndex(({ id }) => id === holder);
    cluster.crash(index);
    cluster.restart(index);
    held.drop();
    cluster.advance(6000);
    expect(cluster.scheduler!.status()).toMatchObject({ redundancy: 'full', unrecoverable: [] });
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([5, 75]);
  });

  it('forgets sessions that have ended since', () => {
    lost({ clients: 2 });
    const [, other] = cluster.clients;
    reload();
    cluster.stepScheduler({ kind: 'message', from: other!.id, role: 'client', message: { t: 'detach' } });
    cluster.advance(5000);
    expect(cluster.owner(0).clients()).toEqual([cluster.client.id]);
  });

  it('does not touch a shard that may yet be recovered', () => {
    nextId = 1;
    cluster = new Cluster({ k: 3, r: 1, spares: 2 });
    tell({ t: 'setPlan', id: 1, name: 'all', plan: PLAN });
    const rows = { keys: [1, 2, 3], value: 5 };
    push({ 0: [rows], 1: [rows], 2: [rows] });
    tell({ t: 'saveNow', id: 2, name: 'all' });
    cluster.advance(600);
    // Two shards are lost, and the report of one of them does not come.
    const gone = cluster.lose(({ message }) => message.t === 'unrecoverable' && message.m === 1);
    cluster.crash(0, { noticed: false });
    cluster.crash(1, { noticed: false });
    cluster.notice(0);
    cluster.notice(1);
    cluster.advance(3000);
    expect(cluster.scheduler!.status().unrecoverable).toMatchObject([{ m: 0 }]);
    const before = cluster.map.groups[0];
    expect(reload()).toMatchObject({
      code: 'NOT_READY',
      message: expect.stringMatching(/shard 1 of group 0/),
    });
    expect(cluster.map.groups[0]).toEqual(before);
    gone();
    cluster.advance(3000);
    expect(reload().shards.map(([, shard]) => shard)).toEqual([0, 1]);
    cluster.advance(5000);
    expect([cluster.read(0, 1), cluster.read(1, 1), cluster.read(2, 1)]).toEqual([5, 5, 5]);
  });

  it('refuses an export, and a checkpoint without the tables of the job', () => {
    lost();
    const draft = cluster.place.manifests[0]!;
    const ask = (change: Partial<typeof draft>) => {
      cluster.place.manifests.push({ ...draft, number: 90 + nextId, ...change });
      return reload(nextId, 90 + nextId++);
    };
    expect(ask({ kind: 'export' })).toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(ask({ tables: [{ ...draft.tables[0]!, dim: 3 }] })).toMatchObject({ code: 'BAD_ARGUMENT' });
    // This table has none, so its rows have other words.
    const other = ask({ tables: [{ ...draft.tables[0]!, policy: { ttl: 3 } }] });
    expect(other).toMatchObject({ code: 'BAD_ARGUMENT', message: expect.stringContaining('policy') });
    expect(ask({ shards: draft.shards.slice(1) })).toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(cluster.scheduler!.status().redundancy).toBe('lost');
  });

  it.each<[string, TablePolicy, TablePolicy]>([
    ['scores where those of the job have none', { maxRows: 9, score: true }, { maxRows: 9 }],
    ['seconds where those of the job have steps', { ttl: 9, clock: 'seconds' }, { ttl: 9 }],
  ])('refuses a checkpoint whose rows have %s, or the reverse', (_, one, other) => {
    for (const policy of [one, other]) {
      lost({ tables: [{ ...tableSpec('t'), policy }] });
      const draft = cluster.place.manifests[0]!;
      const ask = (saved: TablePolicy) => {
        const tables = [{ ...draft.tables[0]!, policy: saved }];
        cluster.place.manifests.push({ ...draft, number: 90 + nextId, tables });
        return reload(nextId, 90 + nextId++);
      };
      expect(ask(policy === one ? other : one)).toMatchObject({
        code: 'BAD_ARGUMENT',
        message: expect.stringContaining('one of both has no policy, no score or another clock'),
      });
      expect(ask({ ...policy, ttl: 500 }).code).toBeUndefined();
      cluster.close();
    }
    lost();
  });

  it('takes numbers of another job only of sessions that are common to both', () => {
    lost();
    const draft = cluster.place.manifests[0]!;
    cluster.place.manifests.push({ ...draft, number: 90, job: 'another' });
    reload(1, 90);
    cluster.advance(900);
    expect(cluster.sent('loadShard').at(-1)!.message).toMatchObject({ sessionsBelow: 1 });
    cluster.advance(5000);
    expect(push({ 0: [{ keys: [1], value: 1 }] }).done).toBe(true);
    expect(cluster.read(0, 1)).toBe(6);
  });
});
