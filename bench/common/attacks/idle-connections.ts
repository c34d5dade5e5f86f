/** Connections that say nothing, half a frame, or one byte a second, also after their hello. */
import type { Attack, AttackedJob } from './attack.js';
import { byCrowd, Crowd } from './crowd.js';
import type { AttackSocketsOptions } from './sockets.js';

const CONNECTIONS = 8192;

export function idleConnections(job: AttackedJob): Attack {
  const crowd = new Crowd('sockets');
  return byCrowd(crowd, {
    name: 'idle-connections',
    prepare: async () => {},
    async start() {
      const { job: id } = await job.client.status();
      const options: AttackSocketsOptions = {
        addresses: job.psAddresses(),
        count: job.scaled(CONNECTIONS),
        job: id,
      };
      return crowd.start([options], 'ready');
    },
    stop: () => crowd.end(),
  });
}
