/** A recovery is told when it begins, when its shards serve and when they are complete. */
import { beforeEach, expect, it } from 'vitest';
import { EVENT_DELAY_MS } from '../../../src/core/scheduler/events.js';
import { BareScheduler, type Identity } from './bare.js';

let bare: BareScheduler;
let nodes: Identity[];
let told: [kind: string, fields: Record<string, unknown>][];

beforeEach(() => {
  bare = new BareScheduler(2, 1, 3, {}, 3);
  nodes = ['ps-0', 'ps-1', 'ps-2', 'ps-3'].map((name) => bare.join(name));
  for (const node of nodes) bare.complete(node);
  told = [];
  news();
  told = [];
});

function news(): void {
  bare.tick(EVENT_DELAY_MS);
  const { events } = bare.scheduler;
  const before = told.length;
  const all = [...events.since(0), ...events.since(100)].filter(({ kind }) => kind.startsWith('recovery.'));
  told = all.map(({ kind, fields }) => [kind, fields]);
  expect(told.length).toBeGreaterThanOrEqual(before);
}

function lose({ id, inc }: Identity): void {
  bare.step({ kind: 'closed', peer: id, inc });
  bare.step({ kind: 'refused', node: id, inc });
}

const owned = ({ id }: Identity) =>
  bare.groups.flatMap((group) =>
    group.data.flatMap(({ node, gen, init }, m) => (node === id && !init ? [{ g: group.id, m, gen }] : [])),
  );

/** Shards that were never recovered. */
const whole = ({ id }: Identity) =>
  bare.groups.flatMap((group) =>
    group.data.flatMap(({ node, gen, init }, m): [number, number, number][] =>
      node === id && init ? [[group.id, m, gen]] : [],
    ),
  );

const stats = { blocksLost: 5, blocksPresent: 1, blocksOnDemand: 0 };

it('tells how many shards recover, that they serve, and that they are complete', () => {
  const [lost] = nodes;
  const shards = bare.groups.flatMap(({ data }) => data.filter(({ node }) => node === lost!.id)).length;
  expect(shards).toBeGreaterThan(0);
  lose(lost!);
  const recovery = bare.scheduler.map.epoch;
  news();
  expect(told).toEqual([['recovery.begun', { recovery, shards }]]);
  bare.tick(100);
  for (const node of nodes.slice(1))
    bare.heartbeat(node, {
      recoveries: owned(node).map((shard) => ({ ...shard, ...stats, keysReady: true })),
    });
  news();
  expect(told.slice(1)).toEqual([['recovery.keysReady', { recovery, shards, tookMs: EVENT_DELAY_MS + 100 }]]);
  expect(bare.scheduler.recovering).toBe(1);
  for (const node of nodes.slice(1)) bare.complete(node);
  news();
  const tookMs = 2 * EVENT_DELAY_MS + 100;
  expect(told.slice(2)).toEqual([['recovery.complete', { recovery, shards, tookMs }]]);
  expect(bare.scheduler.recovering).toBe(0);
});

it('a shard that is beyond repair is waited for by nobody', () => {
  lose(nodes[0]!);
  for (const node of nodes.slice(1))
    for (const { g, m, gen } of owned(node)) {
      const v = bare.groups[g]!.version;
      bare.hear(node.id, { t: 'unrecoverable', g, m, gen, v, blocks: 3 });
    }
  expect(bare.scheduler.recovering).toBe(0);
  news();
  expect(told.map(([kind]) => kind)).toEqual(['recovery.begun']);
});

it('a move is no recovery', () => {
  bare.hear(bare.attach().id, { t: 'drain', id: 1, node: 'ps-0', timeoutMs: 0 });
  for (let i = 0; i < 60; i++) {
    bare.tick(300);
    for (const node of nodes) bare.complete(node);
  }
  const holds = bare.groups.some(({ data }) => data.some(({ node }) => node === nodes[0]!.id));
  news();
  expect([holds, told]).toEqual([false, []]);
});

/** Another scheduler goes on. These come back as who they were, and nobody listens where the others were. */
function resume(...back: Identity[]): void {
  bare.restart();
  for (const { id, inc, name } of bare.scheduler.map.nodes)
    if (back.some((node) => node.id === id)) bare.join(name, { id, inc });
    else bare.step({ kind: 'refused', node: id, inc });
}

const happened = () => {
  bare.tick(EVENT_DELAY_MS);
  return bare.scheduler.events.since(0).map(({ kind, fields }) => [kind, fields] as const);
};
const redundancies = () => happened().flatMap(([kind, { state }]) => (kind === 'redundancy' ? [state] : []));

it('the end of a recovery is told by the scheduler that resumes the job', () => {
  const left = nodes.slice(1);
  lose(nodes[0]!);
  const recovery = bare.scheduler.map.epoch;
  news();
  const shards = told[0]![1].shards;
  resume(...left);
  bare.tick(300);
  for (const node of left) {
    const recoveries = owned(node).map((shard) => ({ ...shard, ...stats, keysReady: true as const }));
    bare.heartbeat(node, { completeShards: whole(node), recoveries });
  }
  news();
  const tookMs = EVENT_DELAY_MS + 300;
  expect(told.slice(1)).toEqual([['recovery.keysReady', { recovery, shards, tookMs }]]);
  expect(bare.scheduler.recovering).toBe(1);
  for (const node of left) bare.complete(node);
  news();
  expect(told.slice(2)).toEqual([
    ['recovery.complete', { recovery, shards, tookMs: tookMs + EVENT_DELAY_MS }],
  ]);
  expect(bare.scheduler.recovering).toBe(0);
  // A recovery has one end.
  resume(...left);
  for (const node of left) bare.complete(node);
  news();
  expect(told).toHaveLength(3);
});

it('a shard that its node refuses, and tries again beside a complete mirror, is another recovery', () => {
  bare.hear(bare.attach().id, { t: 'drain', id: 1, node: 'ps-0', timeoutMs: 0 });
  const mirrors = () => bare.groups.flatMap(({ sinks }) => sinks.filter(({ kind }) => kind === 'M'));
  bare.tick(300);
  const [mirror] = mirrors();
  const target = nodes.find(({ id }) => id === mirror!.node)!;
  bare.heartbeat(target, { completeSinks: [mirror!.sid] });
  const g = bare.groups.findIndex(({ sinks }) => sinks.some(({ sid }) => sid === mirror!.sid));
  const m = mirror!.index;
  const { gen } = bare.groups[g]!.data[m]!;
  expect(bare.groups[g]!.data[m]).toMatchObject({ node: target.id, init: false });
  lose(nodes[0]!);
  news();
  expect(told.map(([kind]) => kind)).toEqual(['recovery.begun']);
  const left = nodes.slice(1);
  resume(...left);
  for (const node of left) bare.heartbeat(node, { completeShards: whole(node) });
  bare.hear(target.id, { t: 'shardRefused', g, m, gen, mirror: mirror!.sid });
  const again = bare.groups[g]!.data[m]!;
  expect([again.node, again.gen > gen]).toEqual([target.id, true]);
  for (const node of left) bare.complete(node);
  expect(bare.scheduler.recovering).toBe(0);
  news();
  const of = (kind: string) => told.filter((event) => event[0] === kind).map(([, { recovery }]) => recovery);
  expect(of('recovery.begun')).toContain(again.gen);
  expect(of('recovery.complete')).toContain(again.gen);
});

it('a recovery that ended while no scheduler ran is told when all have reported', () => {
  const left = nodes.slice(1);
  lose(nodes[0]!);
  news();
  resume(...left);
  for (const node of left.slice(1)) bare.complete(node);
  expect(bare.scheduler.recovering).toBe(0);
  news();
  expect(told.map(([kind]) => kind)).toEqual(['recovery.begun']);
  bare.complete(left[0]!);
  news();
  expect(told.map(([kind]) => kind)).toEqual(['recovery.begun', 'recovery.keysReady', 'recovery.complete']);
});

it('what was whole before has no recovery to end, however its begin was told', () => {
  const left = nodes.slice(1);
  lose(nodes[0]!);
  // The shards are lost again: no end of the first recovery is told.
  const second = left.find((node) => owned(node).length > 0)!;
  bare.tick(10);
  for (const node of left) bare.complete(node);
  lose(second);
  const rest = left.filter((node) => node !== second);
  for (const node of rest) bare.complete(node);
  bare.join('ps-9');
  news();
  const before = told.length;
  resume(...rest);
  for (const node of rest) bare.complete(node);
  news();
  const ends = told.slice(before).filter(([kind]) => kind === 'recovery.complete').length;
  const begun = told.filter(([kind]) => kind === 'recovery.begun').length;
  const complete = told.filter(([kind]) => kind === 'recovery.complete').length;
  expect(ends).toBeLessThanOrEqual(1);
  expect(complete).toBeLessThanOrEqual(begun);
});

it('a scheduler that resumes the job says nothing of redundancy before it knows', () => {
  expect(redundancies()).toEqual(['recovering', 'full']);
  resume(...nodes);
  for (const node of nodes.slice(1)) bare.complete(node);
  expect(redundancies()).toEqual(['recovering', 'full']);
  bare.complete(nodes[0]!);
  expect(redundancies()).toEqual(['recovering', 'full', 'full']);
  lose(nodes[0]!);
  expect(redundancies().at(-1)).not.toBe('full');
});

it('one that never hears of a node says what it knows when that node is late', () => {
  resume(...nodes);
  for (const node of nodes.slice(1)) bare.complete(node);
  for (let i = 0; i < 20; i++) {
    bare.tick(300);
    for (const node of nodes.slice(1)) bare.heartbeat(node);
  }
  expect(happened().at(-1)).toMatchObject(['redundancy', {}]);
  expect(redundancies()).toHaveLength(3);
});

it('a loss is told once, however often a scheduler resumes the job', () => {
  const losses = () => happened().filter(([kind]) => kind === 'node.lost').length;
  lose(nodes[0]!);
  for (const node of nodes.slice(1)) bare.complete(node);
  expect(losses()).toBe(1);
  resume(...nodes.slice(1));
  expect(losses()).toBe(1);
  // Another node dies while no scheduler runs.
  resume(...nodes.slice(2));
  expect(losses()).toBe(2);
  resume(...nodes.slice(2));
  expect(losses()).toBe(2);
});

it('a node that has not reported to the scheduler that resumes the job is told as such', () => {
  resume(...nodes);
  const reported = () => bare.scheduler.status().nodes.map((node) => node.reported);
  expect(reported()).toEqual([false, false, false, false]);
  bare.heartbeat(nodes[1]!, { rows: 0 });
  expect(reported()).toEqual([false, undefined, false, false]);
});
