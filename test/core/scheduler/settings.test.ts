/** Clipping and schedules that are set: which pushes have them, who may change them, and what stays. */
import { afterEach, describe, expect, it } from 'vitest';
import type { OptimizerSpec } from '../../../src/engine/native.js';
import { optimizerOf } from '../../../src/engine/optimizers.js';
import type { MessageOf } from '../../../src/protocol/messages.js';
import type { AskedTable } from '../../../src/protocol/tables.js';
import { Cluster, type ClusterOptions, tableSpec } from '../harness.js';
import { mapsTo } from '../packets.js';

let cluster: Cluster;
afterEach(() => cluster.close());

/** With rate -1 a push adds the norm of its gradient, or what clipping leaves of it. */
const CLIPPED: OptimizerSpec = { kind: 'sgd', lr: -1, clipNorm: 4 };
const COSINE = { kind: 'cosine', warmup: 0, steps: 8, floor: 0 } as const;
let number = 0;
function start(options: Partial<ClusterOptions> = {}): void {
  cluster = new Cluster({ k: 2, r: 1, clients: 1, tables: [tableSpec('t', CLIPPED)], ...options });
}

const table = (name = 't') => cluster.map.tables.find((each) => each.name === name)!;
const set = (changes: Omit<MessageOf<'setTable'>, 't' | 'id' | 'name'>, name = 't') => {
  const id = number++;
  const message = { t: 'setTable' as const, id, name, ...changes };
  cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message });
  cluster.settle();
  cluster.advance(600);
  return cluster.sent('tableSet').find((each) => each.message.id === id)?.message;
};
/** Floats that a push of 100 adds on each member. */
const added = () => {
  const before = [0, 1].map((m) => cluster.read(m, 1));
  cluster.client.push(Object.fromEntries([0, 1].map((m) => [m, [{ keys: [1], value: 100 }]])));
  cluster.settle();
  return before.map((value, m) => cluster.read(m, 1) - value);
};
const resume = (optimizer: OptimizerSpec, asked?: AskedTable['set'], name = 't') => {
  const id = number++;
  const specs = [{ ...tableSpec(name, optimizer), ...(asked && { set: asked }) }];
  const message = { t: 'createTables' as const, id, specs };
  cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message });
  cluster.settle();
  cluster.advance(600);
  const answer = cluster.sent('tablesCreated').find((each) => each.message.id === id)!.message;
  return answer.code ? [answer.code, answer.message] : answer.tables[0]!.optimizer;
};

it('settings of a table that was dropped are not those of another one with its name', () => {
  start();
  expect(set({ table: table().id + 1, lr: -2 })).toMatchObject({
    ...{ code: 'UNKNOWN_TABLE', message: 'table "t" was dropped, and another one has its name' },
  });
  expect(table().optimizer).toEqual(CLIPPED);
  expect(set({ table: table().id, lr: -2 })?.code).toBeUndefined();
  expect(table().optimizer).toMatchObject({ lr: -2 });
});

describe('a clip that is set', () => {
  it('holds on every shard when the client is told, and each decides for itself until then', () => {
    start();
    const [least] = added();
    const held = cluster.hold(mapsTo(cluster, 1));
    expect(set({ clipNorm: 8 })).toBeUndefined();
    expect(added()).toEqual([2 * least!, least]);
    held.release();
    cluster.advance(600);
    expect(added()).toEqual([2 * least!, 2 * least!]);
    expect(set({ lr: -2, clipNorm: null })?.code).toBeUndefined();
    const [most] = added();
    expect(most).toBeGreaterThan(4 * least!);
    expect(cluster.checkParities()).toBeGreaterThan(0);
    expect(cluster.eventsNamed('table.set')).toEqual([
      { table: 't', clipNorm: 8, was: 4 },
      { table: 't', lr: -2, was: -1 },
      { table: 't', clipNorm: 'none', was: 8 },
    ]);
    expect(table()).toMatchObject({ optimizer: { lr: -2 }, earlierRates: [-1], earlierClips: [4, 8] });
    cluster.restartScheduler();
    expect(table()).toMatchObject({ optimizer: { lr: -2 }, earlierRates: [-1], earlierClips: [4, 8] });
  });

  it('stays when a worker comes again with old flags, each of which counts for itself', () => {
    start();
    set({ clipNorm: 8 });
    set({ lr: -2, clipNorm: 9 });
    const now = { kind: 'sgd', lr: -2, clipNorm: 9 };
    for (const clipNorm of [4, 8])
      for (const lr of [-1, -2])
        expect(resume({ ...now, lr, clipNorm } as never, ['lr', 'clipNorm'])).toEqual(now);
    expect(resume({ kind: 'sgd', lr: -1 }, ['lr'])).toEqual(now);
    expect(resume(CLIPPED)).toEqual(now);
    const { code, message } = {
      code: 'TABLE_EXISTS',
      message: 'table "t" exists with optimizer.clipNorm 9, not 7',
    };
    expect(resume({ ...CLIPPED, clipNorm: 7 })).toEqual([code, message]);
    // A new clip with an old rate: the clip is set.
    expect(resume({ ...CLIPPED, clipNorm: 7 }, ['lr', 'clipNorm'])).toEqual({ ...now, clipNorm: 7 });
    expect(table()).toMatchObject({ earlierRates: [-1], earlierClips: [4, 8, 9] });
  });
});

describe('a schedule that is set', () => {
  it('comes, changes and goes where rows count steps all the same', () => {
    start({ tables: [tableSpec(), tableSpec('a', optimizerOf('adam', 1))] });
    expect(set({ schedule: { kind: 'cosine', steps: 8 } }, 'a')?.code).toBeUndefined();
    expect(table('a').optimizer.schedule).toEqual(COSINE);
    expect(set({ schedule: null }, 'a')?.code).toBeUndefined();
    expect(table('a').optimizer).toEqual(optimizerOf('adam', 1));
    expect(table('a').earlierSchedules).toEqual([null, COSINE]);
    const old = { ...optimizerOf('adam', 1), schedule: COSINE };
    expect(resume(old, ['schedule'], 'a')).toEqual(optimizerOf('adam', 1));
    const other = { ...old, schedule: { ...COSINE, steps: 9 } };
    expect(resume(other, ['schedule'], 'a')).toEqual(other);
  });

  it('is refused where rows would have other lengths, with both values', () => {
    const counted: OptimizerSpec = { kind: 'sgd', lr: -1, schedule: COSINE };
    start({ tables: [tableSpec(), tableSpec('s', counted), tableSpec('f', optimizerOf('ftrl', 0.5))] });
    const refused = (name: string, schedule: typeof COSINE | null) => set({ schedule }, name)?.message;
    expect(refused('t', COSINE)).toContain(
      'optimizer sgd: schedule stays none and cannot become {"kind":"cosine"',
    );
    expect(refused('s', null)).toMatch(
      /schedule stays \{"kind":"cosine".*\} and cannot become none: rows have a/,
    );
    expect(refused('f', COSINE)).toContain('ftrl: schedule stays none and cannot become {"kind":"cosine"');
    expect(refused('s', { ...COSINE, steps: 0 } as never)).toContain('steps must be an integer from 1');
    expect(resume({ ...counted, lr: -1 }, ['schedule'], 't')).toEqual([
      'TABLE_EXISTS',
      expect.stringContaining('table "t" exists with optimizer.schedule none, not {"kind":"cosine"'),
    ]);
    const [, , f] = cluster.map.tables;
    expect(f).toEqual({ ...tableSpec('f', optimizerOf('ftrl', 0.5)), id: f!.id });
    expect(set({ schedule: { kind: 'constant', warmup: 2 } }, 's')?.code).toBeUndefined();
    expect(resume({ kind: 'sgd', lr: -1 }, [], 's')).toMatchObject({ schedule: { kind: 'constant' } });
  });
});

it('a map from before clips could be set means what it meant', () => {
  start({ tables: [tableSpec('t', CLIPPED)] });
  set({ lr: -2 });
  set({ lr: -3 });
  expect(table().earlierRates).toEqual([-1, -2]);
  expect([table().earlierClips, table().earlierSchedules]).toEqual([undefined, undefined]);
  set({ clipNorm: 8 });
  for (const lr of [-1, -2])
    expect(resume({ ...CLIPPED, lr }, ['lr', 'clipNorm'])).toEqual({ kind: 'sgd', lr: -3, clipNorm: 8 });
});
