/** Sessions of a job that goes on from a checkpoint. */
import { expect, it } from 'vitest';
import { restoredJob } from '../../../src/core/scheduler/scheduler.js';

it('sessions of ranges that were open are open, and no worker holds them', () => {
  const pool = { name: 'embedding', k: 1, r: 1, groups: 1, firstGroup: 0 };
  const state = restoredJob('again', 2, [pool], 'memory', {
    kind: 'full job',
    number: 3,
    job: 'before',
    barrier: false,
    pools: [pool],
    tables: [],
    samples: { nextPeer: 9, sessions: [4, 7], datasets: [] },
    shards: [],
  });
  expect([...state.sessions.values()]).toEqual([
    { id: 4, leased: false },
    { id: 7, leased: false },
  ]);
});
