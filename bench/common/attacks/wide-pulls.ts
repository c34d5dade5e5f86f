/** Clients that pull the widest rows that there are, as fast as they are answered. */
import type { Attack, AttackedJob } from './attack.js';
import { byCrowd, Crowd } from './crowd.js';
import { filled, pulling, WIDE_TABLE } from './pulls.js';

const CLIENTS = 60;
const IN_FLIGHT = 2;

export function widePulls(job: AttackedJob): Attack {
  const crowd = new Crowd('clients');
  return byCrowd(crowd, {
    name: 'wide-pulls',
    prepare: () => filled(job, WIDE_TABLE),
    start: () =>
      crowd.start(pulling(job, WIDE_TABLE, CLIENTS, { work: 'pull', inFlight: IN_FLIGHT }), 'ready'),
    stop: () => crowd.end(),
  });
}
