/** Nodes, sinks and clients come and go 100,000 times: what the scheduler knows does not grow with them. */
import { expect, it } from 'vitest';
import { BareScheduler, type Identity } from './bare.js';

/** Entries of all lists, maps, sets and records that can be reached. */
function census(root: unknown): number {
  const seen = new Set<object>();
  const open: unknown[] = [root];
  let entries = 0;
  while (open.length > 0) {
    const value = open.pop();
    if (typeof value !== 'object' || value === null || seen.has(value)) continue;
    seen.add(value);
    const inner =
      value instanceof Map ? [...value].flat() : value instanceof Set ? [...value] : Object.values(value);
    entries += inner.length;
    open.push(...inner);
  }
  return entries;
}

/** One node and one client each. */
const ROUNDS = 50_000;
const STALENESS = 2;
const DATASET = {
  t: 'openDataset' as const,
  id: 1,
  name: 'data',
  spec: {
    files: [{ name: 'f', size: 100, rangeBytes: 1 }],
    batch: 1,
    epochs: 1,
    seed: 1,
    shuffle: false,
    staleness: STALENESS,
  },
};

/**
 * A worker leases a range, asks whether it may go on, gives the range back and leaves; or it just vanishes.
 */
function worker(job: BareScheduler, politely: boolean): void {
  const { id, link } = job.attach();
  if (job.now < 2000) job.hear(id, DATASET);
  job.hear(id, { t: 'acquire', id: 5, name: 'data', clock: 0 });
  job.hear(id, { t: 'advance', id: 6, name: 'data', clock: 1 });
  if (politely) job.hear(id, { t: 'detach' });
  job.step({ kind: 'closed', peer: id, inc: 0, link });
  // A message that comes when its session is over leaves nothing behind.
  if (politely) job.hear(id, { t: 'advance', id: 7, name: 'data', clock: 1 });
}

it('stays as large as it is', { timeout: 300_000 }, () => {
  const job = new BareScheduler(1, 1, 1, {
    maxAbsentNodes: 8,
    sessionMs: 1000,
    maxRangeFailures: Number.POSITIVE_INFINITY,
  });
  const owner = job.join('owner');
  job.complete(owner);
  let last: Identity = job.join('first');
  job.complete(last);
  const sizes: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    // The parity's node goes, and one that was never seen comes in its place.
    job.step({ kind: 'closed', peer: last.id, inc: last.inc });
    job.step({ kind: 'refused', node: last.id, inc: last.inc });
    last = job.join(`ps-${round}`);
    // Now and then it was told to leave, or asks before it ends, which is refused.
    if (round % 4 === 1) job.hear(last.id, { t: 'drain', id: 1, node: '', timeoutMs: 0 });
    for (const node of [owner, last]) job.complete(node);
    job.heartbeat(last, {
      completeSinks: [round, 1e6 + round],
      owned: [[round, 3, 1]],
      held: [[round, 9, 1, 1]],
    });
    job.hear(owner.id, { t: 'unrecoverable', g: 0, m: round, gen: 1, v: job.groups[0]!.version, blocks: 1 });
    worker(job, round % 2 === 0);
    job.tick(100);
    if (round % 5_000 === 4_999) sizes.push(census(job.scheduler));
  }
  expect(job.scheduler.map.nodes.length).toBeLessThan(16);
  expect(job.redundancy).toBe('full');
  expect(Object.keys(job.state.names).length).toBeLessThan(16);
  expect(Math.max(...sizes)).toBeLessThan(1.2 * sizes[0]! + 50);
});
