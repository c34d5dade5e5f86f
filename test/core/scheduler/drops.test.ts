/** Tables that are dropped: who frees them when, what late messages do, and what becomes of the name. */
import { afterEach, describe, expect, it } from 'vitest';
import { reloadLost, restoredJob } from '../../../src/core/scheduler/saving/restored.js';
import type { TableSpec } from '../../../src/protocol/map.js';
import type { Message } from '../../../src/protocol/messages.js';
import type { SavePlan } from '../../../src/protocol/saving.js';
import { ADDING, Cluster, type ClusterOptions, tableSpec } from '../harness.js';
import { mapsTo } from '../packets.js';

let cluster: Cluster;
afterEach(() => cluster.close());

/** Table 1 stays, table 2 goes. */
function start(options: Partial<ClusterOptions> = {}): void {
  const tables = [tableSpec('stays'), tableSpec('goes')];
  cluster = new Cluster({ k: 2, r: 1, clients: 2, tables, ...options });
}

const ask = (message: Message, from = cluster.client.id) => {
  cluster.stepScheduler({ kind: 'message', from, role: 'client', message });
  cluster.settle();
};
const drop = (id: number, table = 2, from?: number) => ask({ t: 'dropTable', id, table }, from);
const create = (id: number, spec: Omit<TableSpec, 'id'> = tableSpec('goes')) =>
  ask({ t: 'createTables', id, specs: [spec] });
const answers = (id: number) =>
  cluster.sent('tableDropped').flatMap(({ message }) => (message.id === id ? [message.code ?? 'OK'] : []));
const ids = () => cluster.map.tables.map(({ id }) => id);
/** Pushes 1 to this table, and to table 1, in one section. */
const push = (table: number, ...members: number[]) => {
  const parts = [{ keys: [1] }, ...(table > 1 ? [{ table, keys: [1, 2, 3] }] : [])];
  const ticket = cluster.client.push(Object.fromEntries(members.map((m) => [m, parts])));
  cluster.settle();
  return ticket;
};
/** Tables that anyone has: shards and sinks. */
function held(): number[] {
  const { map } = cluster;
  const found = map.groups.flatMap((group) => [
    ...group.data.flatMap((_, m) => cluster.owner(m)?.native.extents() ?? []),
    ...group.sinks.flatMap(({ sid, node }) => {
      const sink = cluster.nodes.find(({ id }) => id === node)?.node?.sinkAt(sid);
      return group.data.flatMap((_, m) => sink?.native.extents(m) ?? []);
    }),
  ]);
  return [...new Set(found.map(([table]) => table))].sort();
}

describe('a table that is dropped', () => {
  it('takes no memory of shards and parities, and the others are as before', () => {
    start();
    push(2, 0, 1);
    expect(held()).toEqual([1, 2]);
    drop(1);
    expect([answers(1), held(), ids()]).toEqual([[], [1], [1]]);
    cluster.advance(600);
    expect(answers(1)).toEqual(['OK']);
    push(1, 0, 1);
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([2, 2]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
    expect(cluster.eventsNamed('table.dropped')).toEqual([{ table: 'goes', id: 2 }]);
  });

  it('leaves its name to another table, which has none of its rows', () => {
    start();
    push(2, 0, 1);
    drop(1);
    create(2, tableSpec('goes', ADDING, 8));
    expect(ids()).toEqual([1, 4]);
    create(3, tableSpec('more'));
    drop(4, 5);
    drop(5, 4);
    create(6);
    expect([ids(), cluster.map.lastTable]).toEqual([[1, 8], 7]);
    expect(cluster.read(0, 1, 8)).toBe(0);
    push(8, 0, 1);
    expect([cluster.read(0, 1, 8), cluster.read(0, 1)]).toEqual([1, 2]);
    cluster.advance(600);
    expect([held(), cluster.checkParities() > 0]).toEqual([[1, 8], true]);
  });

  it('is dropped once by a question that comes again, and never under another id', () => {
    start();
    drop(1);
    create(2);
    drop(1);
    drop(1, 2, cluster.clients[1]!.id);
    drop(7, 99);
    cluster.advance(600);
    expect([ids(), answers(1), answers(7)]).toEqual([[1, 4], ['OK', 'OK'], ['UNKNOWN_TABLE']]);
  });

  it('is waited for until the last owner has freed it; pushes of an older map come before it', () => {
    start();
    push(2, 0, 1);
    const late = cluster.hold(mapsTo(cluster, 1));
    drop(1);
    cluster.advance(2000);
    expect([answers(1), held()]).toEqual([[], [1, 2]]);
    // One shard has freed it, and the other has not.
    expect(push(2, 0, 1)).toMatchObject({ done: true, error: undefined });
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([2, 2]);
    late.release();
    cluster.advance(600);
    expect([answers(1), held()]).toEqual([['OK'], [1]]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('does not come back with a shard that is recovered, also when the drop comes in the middle', () => {
    start({ spares: 1 });
    push(2, 0, 1);
    const held1 = cluster.hold(({ message }) => message.t === 'startAck');
    cluster.crash(0);
    cluster.advance(1500);
    drop(1);
    held1.release();
    cluster.advance(3000);
    expect([answers(1), held(), cluster.read(0, 1)]).toEqual([['OK'], [1], 1]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('is gone for a scheduler that is started again, which uses no id twice', () => {
    start();
    push(2, 0, 1);
    drop(1);
    cluster.crashScheduler();
    cluster.restartScheduler();
    cluster.advance(600);
    create(2);
    expect([ids(), cluster.map.lastTable]).toEqual([[1, 4], 3]);
    drop(1);
    cluster.advance(600);
    expect([answers(1), ids()]).toEqual([['OK'], [1, 4]]);
  });

  it('is not dropped by somebody without a session', () => {
    start();
    drop(1, 2, 12_345);
    expect([ids(), answers(1)]).toEqual([[1, 2], []]);
  });
});

describe('checkpoints of a job that drops a table', () => {
  const PLAN: SavePlan = { url: 'memory', everyMs: 0, keep: 9, rate: 0, kind: 'full job' };
  const save = (id: number) => {
    ask({ t: 'saveNow', id, name: 'all' });
    cluster.advance(600);
  };
  const restored = () => {
    const { place } = cluster;
    const pools = [{ name: 'embedding', k: 2, r: 1, groups: 1 }];
    const state = () => restoredJob('again', 3, pools, 'memory', place.manifests.at(-1)!);
    cluster.close();
    cluster = new Cluster({ k: 2, r: 1, tables: [], state, place });
  };

  it('have none of its rows for another table of its name', () => {
    start();
    ask({ t: 'setPlan', id: 1, name: 'all', plan: PLAN });
    push(2, 0, 1);
    save(2);
    drop(3);
    create(4);
    push(4, 0);
    save(5);
    expect(cluster.place.manifests.map(({ lastTable }) => lastTable)).toEqual([undefined, 3]);
    restored();
    cluster.advance(3000);
    const { id } = cluster.map.tables.find(({ name }) => name === 'goes')!;
    expect([cluster.read(0, 1, id), cluster.read(1, 1, id), cluster.read(1, 1)]).toEqual([1, 0, 1]);
  });

  it('begin again when the drop comes in the middle, and answer who waits', () => {
    start();
    ask({ t: 'setPlan', id: 1, name: 'all', plan: PLAN });
    push(2, 0, 1);
    const late = cluster.hold(({ message }) => message.t === 'shardSaved');
    save(2);
    drop(3);
    create(4);
    late.release();
    cluster.advance(2000);
    const done = cluster.sent('saveDone').map(({ message }) => [message.id, message.code]);
    expect([done, cluster.place.manifests.length]).toEqual([[[2, undefined]], 1]);
    expect(cluster.place.manifests[0]!.lastTable).toBe(3);
    restored();
    cluster.advance(1000);
    // Shards are loaded from files that know the table by its name.
    expect(cluster.map.tables.map(({ name }) => name)).toEqual(['stays', 'goes']);
    expect(cluster.read(0, 1, 2)).toBe(0);
  });

  it('are not those that lost shards are loaded from, unless they are newer', () => {
    start({ spares: 0 });
    ask({ t: 'setPlan', id: 1, name: 'all', plan: PLAN });
    push(2, 0, 1);
    save(2);
    const [old] = cluster.place.manifests;
    drop(3);
    const lost = (checkpoint: typeof old) =>
      reloadLost(
        {
          map: cluster.map,
          firstPeer: 1,
          lost: [{ g: 0, m: 0 }],
          isComplete: () => true,
          nextSid: () => 9,
        },
        checkpoint!,
      ).shards.length;
    expect(() => lost(old)).toThrow('before this job dropped a table');
    save(4);
    expect(lost(cluster.place.manifests.at(-1))).toBe(1);
  });

  it('are loaded before a table is dropped', () => {
    start();
    ask({ t: 'setPlan', id: 1, name: 'all', plan: PLAN });
    push(2, 0, 1);
    save(2);
    restored();
    drop(3);
    expect([answers(3), ids()]).toEqual([['NOT_READY'], [1, 2]]);
    cluster.advance(3000);
    drop(4);
    expect(ids()).toEqual([1]);
  });
});
