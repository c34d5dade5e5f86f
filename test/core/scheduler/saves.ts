/** A cluster that makes checkpoints, for tests: one at a time, and what is asked of it. */
import { afterEach, expect } from 'vitest';
import type { MessageOf } from '../../../src/protocol/messages.js';
import { type DatasetSpec, UNBOUNDED } from '../../../src/protocol/samples.js';
import type { SavePlan } from '../../../src/protocol/saving.js';
import { Cluster, type ClusterOptions } from '../harness.js';

export const PLAN: SavePlan = { url: 'memory', everyMs: 0, keep: 3, rate: 0, kind: 'full job' };
export const DATASET: DatasetSpec = {
  files: [{ name: 'a.tsv', size: 80, rangeBytes: 20 }],
  ...{ batch: 4, epochs: 1, seed: 1, shuffle: false, staleness: UNBOUNDED },
};

/** The cluster of the running test. */
export let cluster: Cluster;
afterEach(() => cluster.close());

export function start(options: Partial<ClusterOptions> = {}, plan: Partial<SavePlan> = {}): Cluster {
  cluster = new Cluster({ k: 2, r: 1, ...options });
  tell({ t: 'setPlan', id: 1, name: 'all', plan: { ...PLAN, ...plan } });
  return cluster;
}

export function tell(message: Parameters<Cluster['send']>[2]): void {
  cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message });
  cluster.settle();
}

export function push(value: number, ...keys: number[]): void {
  const ticket = cluster.client.push({ 0: [{ keys, value }], 1: [{ keys, value }] });
  cluster.settle();
  expect(ticket.done).toBe(true);
}

let nextId = 100;

/** A new id for each question. */
export const newId = () => nextId++;

/** Asks for a checkpoint and lets some time pass: the answers to what was asked for. */
export function save(ms = 300): MessageOf<'saveDone'>[] {
  const before = cluster.history.length;
  tell({ t: 'saveNow', id: newId(), name: 'all' });
  cluster.advance(ms);
  return cluster.sent('saveDone', before).map(({ message }) => message);
}

export const drafts = () => cluster.place.manifests;
export const failures = () => cluster.eventsNamed('checkpoint.failed').map(({ code }) => code);
