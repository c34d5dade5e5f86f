/**
 * Checkpoints and exports in turns, while much is pushed, to a store that takes one byte a second. A job
 * makes one of them at a time, so each turn gives up the one before.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { CHECKPOINT_PLAN, type SavePlan } from '../../../src/protocol/saving.js';
import type { Attack, AttackedJob } from './attack.js';
import { byCrowd, Crowd } from './crowd.js';
import { BROAD_TABLE, filled, pushing } from './pulls.js';

const EVERY_MS = 1000;
const TURN_MS = 4000;

export function slowPlace(job: AttackedJob): Attack {
  const crowd = new Crowd('clients');
  const [checkpoints, exports] = [`${job.slowPlace}/checkpoints`, `${job.slowPlace}/exports`];
  const usual = { everyMs: EVERY_MS, keep: 2, rate: 0 };
  const plans: readonly (readonly [name: string, plan: SavePlan])[] = [
    [CHECKPOINT_PLAN, { ...usual, url: checkpoints, kind: 'full job' }],
    ['export', { ...usual, url: exports, kind: 'export' }],
  ];
  const ended = new AbortController();
  let turns: Promise<void> | undefined;

  async function takeTurns(): Promise<void> {
    for (let turn = 0; !ended.signal.aborted; turn++) {
      const [name, plan] = plans[turn % plans.length]!;
      await setSavePlan(job.client, name, plan);
      await pause(TURN_MS, undefined, { signal: ended.signal }).catch(() => {});
      await setSavePlan(job.client, name);
    }
  }

  return byCrowd(crowd, {
    name: 'slow-place',
    prepare: () => filled(job, BROAD_TABLE),
    async start() {
      // Rows that change while they are saved are kept for the checkpoint.
      await crowd.start([pushing(job)], 'ready');
      turns = takeTurns();
      turns.catch(() => {});
    },
    async stop() {
      ended.abort();
      const outcome = await crowd.end();
      await turns;
      return outcome;
    },
  });
}
