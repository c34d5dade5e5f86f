/** Clients that pull and never read: their processes are stopped as soon as they have asked. */
import type { Attack, AttackedJob } from './attack.js';
import { byCrowd, Crowd } from './crowd.js';
import { BROAD_TABLE, filled, pulling } from './pulls.js';

const CLIENTS = 40;
const IN_FLIGHT = 4;

export function neverRead(job: AttackedJob): Attack {
  const crowd = new Crowd('clients');
  return byCrowd(crowd, {
    name: 'never-read',
    prepare: () => filled(job, BROAD_TABLE),
    async start() {
      await crowd.start(pulling(job, BROAD_TABLE, CLIENTS, { work: 'ask', inFlight: IN_FLIGHT }), 'asked');
      crowd.signal('SIGSTOP');
    },
    stop: () => crowd.kill(),
  });
}
