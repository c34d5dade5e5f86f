/** Questions to set a learning rate that come again or late, and how long their answers wait. */
import { afterEach, describe, expect, it } from 'vitest';
import type { Ledger } from '../../../src/core/scheduler/ledger.js';
import type { Liveness } from '../../../src/core/scheduler/liveness.js';
import { OwnersMaps } from '../../../src/core/scheduler/owners-maps.js';
import { optimizerOf } from '../../../src/engine/optimizers.js';
import { type ClusterMap, SCHEDULER, type TableSpec } from '../../../src/protocol/map.js';
import type { Message } from '../../../src/protocol/messages.js';
import { MAX_EARLIER, oldSettingText } from '../../../src/protocol/settings.js';
import { Cluster, type ClusterOptions, kind, tableSpec } from '../harness.js';
import { mapsTo } from '../packets.js';

let cluster: Cluster;
afterEach(() => cluster?.close());

/** Rows of the tables count: with the rate -n a push adds n. */
function start(options: Partial<ClusterOptions> = {}): void {
  cluster = new Cluster({ k: 2, r: 1, clients: 2, tables: [tableSpec(), tableSpec('u')], ...options });
}

const ask = (message: Message, client = 0) => {
  const from = cluster.clients[client]!.id;
  cluster.stepScheduler({ kind: 'message', from, role: 'client', message });
  cluster.settle();
};
const set = (id: number, lr: number, { name = 't', client = 0 } = {}) =>
  ask({ t: 'setTable', id, name, lr }, client);
const answers = (id: number, client = 0) =>
  cluster
    .sent('tableSet')
    .filter(({ to, message }) => to === cluster.clients[client]!.id && message.id === id);
const rate = (name = 't') => cluster.map.tables.find((each) => each.name === name)!.optimizer.lr;

describe('a question to set a rate', () => {
  it('is carried out for its table when a later one of the same client for another table came before', () => {
    start();
    set(2, -3, { name: 'u' });
    set(1, -5);
    cluster.advance(600);
    expect([rate(), rate('u'), answers(1).length, answers(2).length]).toEqual([-5, -3, 1, 1]);
  });

  it('is not carried out when a later one of the same client for the same table came before', () => {
    start();
    set(2, -3);
    set(1, -5);
    cluster.advance(600);
    expect([rate(), answers(1).length, answers(2).length]).toEqual([-3, 1, 1]);
  });

  it('is carried out once, also when it comes again to a later scheduler', () => {
    start();
    set(1, -3);
    set(2, -1, { name: 'u' });
    cluster.advance(600);
    set(1, -5, { client: 1 });
    set(2, -7, { name: 'u', client: 1 });
    cluster.advance(600);
    expect([answers(1, 1).length, answers(2, 1).length]).toEqual([1, 1]);
    cluster.crashScheduler();
    cluster.restartScheduler();
    set(1, -3);
    set(2, -1, { name: 'u' });
    cluster.advance(600);
    expect([rate(), rate('u'), answers(1).length, answers(2).length]).toEqual([-5, -7, 2, 2]);
    set(3, -3);
    expect(rate()).toBe(-3);
  });

  it('of a session that has ended is not carried out', () => {
    start();
    ask({ t: 'detach' });
    set(1, -3);
    cluster.advance(600);
    expect([rate(), answers(1)]).toEqual([-1, []]);
  });

  it('by the flag of a worker that comes again is told when all owners have the rate', () => {
    start();
    const held = cluster.hold(mapsTo(cluster, 1));
    const spec = { ...tableSpec('t', optimizerOf('sgd', -2)), set: ['lr' as const] };
    const told = (id: number) =>
      cluster.sent('tablesCreated').filter(({ message }) => message.id === id).length;
    ask({ t: 'createTables', id: 50, specs: [spec] });
    ask({ t: 'createTables', id: 50, specs: [spec] });
    cluster.crashScheduler();
    cluster.restartScheduler();
    ask({ t: 'createTables', id: 50, specs: [spec] });
    cluster.advance(2000);
    expect([rate(), told(50)]).toEqual([-2, 0]);
    // A table whose rate nobody changed has it everywhere.
    ask({ t: 'createTables', id: 51, specs: [{ ...tableSpec('u'), set: ['lr'] }] });
    expect(told(51)).toBe(1);
    held.release();
    cluster.advance(600);
    expect(told(50)).toBe(1);
  });
});

describe('an answer that waits for the owners', () => {
  it('waits for one in FENCE: the owner before it may still commit pushes with the old rate', () => {
    start({ spares: 1 });
    const [old, sink] = [cluster.nodes[0]!, cluster.nodes[2]!];
    // Node 0 lives and is taken for lost. Client 1 has the map from before, too.
    const cut = cluster.hold(({ from, to, message }) => {
      const isToLate = to === cluster.clients[1]!.id && ['map', 'mapDiff'].includes(message.t);
      return isToLate || (from === old.id && to === SCHEDULER) || (from === SCHEDULER && to === old.id);
    });
    const opens = cluster.hold(kind('open', { to: sink.id }));
    cluster.notice(0);
    cluster.settle();
    cluster.advance(100);
    expect(cluster.map.groups[0]!.data[0]!.node).toBe(cluster.nodes[3]!.id);
    set(1, -3);
    cluster.advance(600);
    const late = cluster.clients[1]!.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    cluster.advance(600);
    expect([late.done, late.error, answers(1)]).toEqual([true, undefined, []]);
    expect(cluster.eventsNamed('recovery.keysReady')).toEqual([]);
    opens.release();
    cluster.advance(1500);
    expect([answers(1).length, cluster.eventsNamed('recovery.keysReady').length]).toEqual([1, 1]);
    cluster.client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    expect(cluster.read(0, 1)).toBe(1 + 3);
    cut.drop();
  });

  it('has a place, however many questions another client asks', () => {
    start();
    const held = cluster.hold(mapsTo(cluster, 1));
    for (let id = 0; id < 4200; id++) {
      const message: Message = { t: 'setTable', id, name: 't', lr: -1 };
      const from = cluster.client.id;
      cluster.stepScheduler({ kind: 'message', from, role: 'client', message });
    }
    set(1, -3, { client: 1 });
    cluster.advance(300);
    expect(answers(1, 1)).toEqual([]);
    held.release();
    cluster.advance(600);
    expect(answers(1, 1)).toHaveLength(1);
  });

  it('is dropped when the session of its client has ended', () => {
    start();
    const held = cluster.hold(mapsTo(cluster, 1));
    set(1, -3);
    set(1, -5, { client: 1 });
    ask({ t: 'detach' });
    held.release();
    cluster.advance(600);
    expect([answers(1).length, answers(1, 1).length]).toEqual([0, 1]);
  });
});

it('the text about a setting that a table keeps says only what is known', () => {
  const earlierRates = Array.from({ length: MAX_EARLIER }, (_, i) => -2 - i);
  expect(oldSettingText({ earlierRates }, 'lr', -2)).toBe('had this lr before');
  expect(oldSettingText({ earlierRates }, 'lr', -1000)).toBe(
    `had ${MAX_EARLIER} other values of lr before and remembers no more, perhaps also this one`,
  );
  expect(oldSettingText({ earlierRates: earlierRates.slice(1) }, 'lr', -1000)).toBeUndefined();
  const table = { earlierClips: [null, 2], earlierSchedules: [{ kind: 'constant' as const, warmup: 3 }] };
  expect(oldSettingText(table, 'clipNorm', undefined)).toBe('had this clipNorm before');
  expect(oldSettingText(table, 'schedule', { warmup: 3, kind: 'constant' })).toBe('had this schedule before');
  expect(oldSettingText(table, 'schedule', undefined)).toBeUndefined();
});

describe('an answer about the rates of tables', () => {
  const [A, B] = [tableSpec('a'), { ...tableSpec('b'), pool: 'other' }].map((spec, i) => ({
    ...spec,
    id: i + 1,
  })) as [TableSpec, TableSpec];
  const message = (id: number) => ({ t: 'tableSet', id, epoch: 0 }) as const;
  /** Two pools with a shard each, on nodes 2 and 3. */
  function pools() {
    const places = [2, 3].map((node) => ({ node, inc: 0, gen: 3, init: false }));
    const groups = places.map((place, pool) => ({ id: pool, pool, data: [place] }));
    const map = { epoch: 5, pools: [{ name: A.pool }, { name: B.pool }], groups } as unknown as ClusterMap;
    const state = { epochs: new Map([2, 3].map((node) => [node, 5])), recovers: new Set<number>() };
    const answered: number[] = [];
    const events: unknown[] = [];
    const ledger = {
      map,
      durableMap: map,
      isLeased: () => true,
      answer: (_: number, { id }: { id: number }) => answered.push(id),
      now: (event: unknown) => events.push(event),
    };
    const owners = new OwnersMaps(
      ledger as unknown as Ledger,
      { of: (node: number) => ({ epoch: state.epochs.get(node) }) } as unknown as Liveness,
      { lost: [], serves: (node) => !state.recovers.has(node) },
    );
    /** The rate of a table changes by a new map. */
    const change = (table: TableSpec): void => {
      map.epoch++;
      owners.changed(table);
    };
    return { ...state, owners, answered, events, places, change };
  }

  it('waits while a shard has no owner: the one before may commit pushes with the old rate', () => {
    const { owners, places, answered } = pools();
    places[0]!.node = 0;
    owners.answer(1, message(1), [A]);
    owners.tick(0);
    expect(answered).toEqual([]);
    places[0]!.node = 2;
    owners.tick(200);
    expect(answered).toEqual([1]);
  });

  it('waits for the pools of its tables alone', () => {
    const { owners, epochs, recovers, answered, change } = pools();
    recovers.add(3);
    change(A);
    epochs.set(2, 6);
    owners.answer(1, message(1), [A]);
    owners.answer(1, message(2), [B]);
    owners.answer(1, message(3), [A, B]);
    owners.tick(0);
    expect(answered).toEqual([1]);
    recovers.clear();
    owners.tick(200);
    expect(answered).toEqual([1, 2, 3]);
  });

  it('waits for no later map than that with the last change of its tables', () => {
    const { owners, epochs, answered, change } = pools();
    change(A);
    epochs.set(2, 6);
    change({ ...A, id: 3 });
    owners.answer(1, message(1), [A]);
    owners.answer(1, message(2), [{ ...A, id: 3 }]);
    owners.tick(0);
    expect(answered).toEqual([1]);
  });

  it('waits for no recovery once all owners had the rates', () => {
    const { owners, recovers, answered, change } = pools();
    owners.tick(0);
    recovers.add(2);
    owners.answer(1, message(1), [A]);
    expect(answered).toEqual([1]);
    change(A);
    owners.answer(1, message(2), [A]);
    owners.tick(200);
    expect(answered).toEqual([1]);
  });

  it('that waits for seconds is one event, with the shard because of which it does', () => {
    const { owners, recovers, events, change } = pools();
    recovers.add(3);
    change(B);
    owners.answer(7, message(1), [A, B]);
    for (let now = 1000; now < 6000; now += 200) owners.tick(now);
    expect(events).toEqual([]);
    for (let now = 6000; now < 20_000; now += 200) owners.tick(now);
    const fields = { client: 7, pool: B.pool, group: 1, member: 0, node: 3, forMs: 5000 };
    expect(events).toEqual([{ kind: 'event', name: 'settings.wait', fields }]);
  });
});
