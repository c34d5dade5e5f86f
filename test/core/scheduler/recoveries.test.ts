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
