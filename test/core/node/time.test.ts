/** Seconds of the job at the owners of shards (rule 50). */
import { afterEach, expect, it } from 'vitest';
import { PsNode } from '../../../src/core/node/node.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { SCHEDULER } from '../../../src/protocol/map.js';
import type { MessageTo } from '../../../src/protocol/senders.js';
import { Cluster, DIM, native, section, tableSpec } from '../harness.js';

const TTL = 100;
const SECOND_MS = 300;
let cluster: Cluster | undefined;
afterEach(() => {
  cluster?.close();
  cluster = undefined;
});

function start(): Cluster {
  const tables = [{ ...tableSpec('t'), policy: { clock: 'seconds' as const, ttl: TTL } }];
  cluster = new Cluster({ k: 1, r: 1, spares: 1, tables, schedulerPolicy: { secondMs: SECOND_MS } });
  return cluster;
}

const rowsOf = (made: Cluster): number => made.owner(0).native.stats()[0]!.rows;

it('rows go when nobody pushes, durably, and the next owner does not have them', () => {
  const made = start();
  made.advance(10 * SECOND_MS);
  made.client.push({ 0: [{ keys: [1, 2, 3] }] });
  made.settle();
  made.advance(TTL * SECOND_MS);
  expect(rowsOf(made)).toBe(3);
  made.advance(2 * SECOND_MS);
  expect(rowsOf(made)).toBe(0);
  const { seq, committed } = made.owner(0).stream;
  expect(seq).toBeGreaterThan(1);
  expect(committed).toBe(seq);
  made.crash(0);
  made.advance(3000);
  expect(made.owner(0).phase).toBe('ACTIVE');
  expect(rowsOf(made)).toBe(0);
});

it('another policy begins without a push, within a second', () => {
  const made = start();
  made.client.push({ 0: [{ keys: [1, 2, 3] }] });
  made.settle();
  made.advance(10 * SECOND_MS);
  const policy = { clock: 'seconds' as const, ttl: 5 };
  const message = { t: 'setTable' as const, id: 7, name: 't', policy };
  made.stepScheduler({ kind: 'message', from: made.client.id, role: 'client', message });
  made.settle();
  expect(rowsOf(made)).toBe(3);
  made.advance(2 * SECOND_MS);
  expect(rowsOf(made)).toBe(0);
});

it('the next owner has the clock of the shard, though it joined late', () => {
  const made = start();
  made.advance(10 * SECOND_MS);
  made.client.push({ 0: [{ keys: [1] }] });
  made.settle();
  made.advance((TTL / 2) * SECOND_MS);
  made.client.push({ 0: [{ keys: [2] }] });
  made.settle();
  made.crash(0);
  made.advance(3000);
  expect(rowsOf(made)).toBe(2);
  made.advance((TTL / 2 + 2) * SECOND_MS - 3000);
  expect(rowsOf(made)).toBe(1);
});

it('rows that are loaded into a job that has run for long keep their age', () => {
  const made = start();
  const { id, inc } = made.nodeById(made.map.groups[0]!.data[0]!.node);
  const node = new PsNode(id, inc, native, native.createMemory(0), DEFAULT_POLICY);
  const hear = (message: MessageTo<'node'>) =>
    node.step({ kind: 'message', from: SCHEDULER, role: 'scheduler', message, parts: [] });
  hear({ t: 'time', seconds: 50_000 });
  hear({ t: 'map', map: made.map });
  const shard = node.ownerAt(0, 0)!.native;
  const life = new Float32Array(Uint32Array.of(40, 3).buffer);
  shard.loadRows(1, BigUint64Array.of(7n), new Float32Array(DIM), life);
  hear({ t: 'time', seconds: 50_001 });
  shard.push(section([{ keys: [8] }], true), 1 << 20);
  const whole = shard.pull(section([{ keys: [7], width: DIM + 2 }], false, 1)) as Uint8Array;
  const row = new Uint32Array(whole.slice().buffer);
  expect(row[DIM]).toBe(41);
  node.close();
});
