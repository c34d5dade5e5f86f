/**
 * A PS is killed, and then many pull wide rows and others never read: pulls of lost rows are parked until
 * they are decoded. The PS is started again meanwhile.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { type Attack, type AttackedJob, outcomesOf } from './attack.js';
import { neverRead } from './never-read.js';
import { widePulls } from './wide-pulls.js';

/** For so long the PS is away. */
const AWAY_MS = 1500;

export function duringRecovery(job: AttackedJob): Attack {
  const [reads, stopped] = [widePulls(job), neverRead(job)];
  return {
    name: 'recovery',
    kills: 1,
    pids: () => [...reads.pids(), ...stopped.pids()],
    abort() {
      reads.abort();
      stopped.abort();
    },
    watched: () => new Map(),
    async prepare() {
      await reads.prepare();
      await stopped.prepare();
    },
    async start() {
      await reads.start();
      job.killOne();
      await stopped.start();
      await pause(AWAY_MS);
      await job.startKilled();
    },
    async beside() {
      job.killOne();
      await pause(AWAY_MS);
      await job.startKilled();
    },
    stop: async () => outcomesOf(await Promise.all([reads.stop(), stopped.stop()])),
  };
}
