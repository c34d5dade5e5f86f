/** The last attempts that a save plan shows outlive the scheduler that made them. */
import { expect, it } from 'vitest';
import { cluster, push, save, start, tell } from './saves.js';

const shown = () => cluster.scheduler!.status().saving![0]!;

it('a scheduler that takes over shows the newest checkpoint, its age, and the failure after it', () => {
  start();
  push(1, 1, 2, 3);
  save();
  cluster.place.storeFails = 'PLACE_FAILED';
  save();
  cluster.advance(1000);
  const before = shown();
  expect(before).toMatchObject({ last: { number: 1, rows: 6 }, failure: { number: 2 } });
  cluster.crashScheduler();
  cluster.restartScheduler();
  cluster.advance(500);
  const { last, ...after } = shown();
  expect(after).toEqual({ ...before, last: undefined });
  expect(last).toEqual({ ...before.last, agoMs: last!.agoMs });
  expect(last!.agoMs).toBeGreaterThanOrEqual(before.last!.agoMs);
});

it('a plan with another place or content has no checkpoint yet', () => {
  start();
  push(1, 1);
  save();
  const { name: _, last, ...plan } = shown();
  expect(last).toBeDefined();
  const again = { ...plan, everyMs: 60_000 };
  tell({ t: 'setPlan', id: 5, name: 'all', plan: again });
  expect(shown().last).toMatchObject({ number: 1 });
  tell({ t: 'setPlan', id: 6, name: 'all', plan: { ...again, url: 'elsewhere' } });
  expect(shown().last).toBeUndefined();
});
