/** Replicas that stop again and again while much is pushed: owners have sent them what they never take. */
import { setTimeout as pause } from 'node:timers/promises';
import { Child } from '../../../src/fleet/local/child.js';
import type { Attack, AttackedJob } from './attack.js';
import { byCrowd, Crowd } from './crowd.js';
import { BROAD_TABLE, filled, pushing } from './pulls.js';

const REPLICAS = 8;
const STOPPED_MS = 2500;
const RUNNING_MS = 500;

export function stalledReplicas(job: AttackedJob): Attack {
  const crowd = new Crowd('clients');
  const replicas: Child[] = [];
  const ended = new AbortController();
  const emergency = (): void => {
    for (const replica of replicas) replica.kill();
  };

  async function stall(): Promise<void> {
    for (let stopped = true; !ended.signal.aborted; stopped = !stopped) {
      for (const replica of replicas) replica.signal(stopped ? 'SIGSTOP' : 'SIGCONT');
      const ms = stopped ? STOPPED_MS : RUNNING_MS;
      await pause(ms, undefined, { signal: ended.signal }).catch(() => {});
    }
  }

  return byCrowd(crowd, {
    name: 'stalled-replicas',
    pids: () => [...crowd.pids(), ...replicas.flatMap(({ pid }) => pid ?? [])],
    abort() {
      crowd.signal('SIGKILL');
      emergency();
    },
    prepare: () => filled(job, BROAD_TABLE),
    async start() {
      process.on('exit', emergency);
      for (let i = 0; i < job.scaled(REPLICAS); i++) {
        const args = ['replica', '--scheduler', job.address, '--connect-timeout', '60s'];
        args.push('--listen', '127.0.0.1:0', '--name', `replica-${i}`);
        replicas.push(new Child({ name: `replica-${i}`, args, onEvent: (_, line) => job.onLine(line) }));
      }
      await Promise.all(replicas.map((replica) => replica.event('replica.ready')));
      await crowd.start([pushing(job)], 'ready');
      void stall();
    },
    async stop() {
      ended.abort();
      emergency();
      await Promise.all(replicas.map(({ exited }) => exited));
      process.off('exit', emergency);
      return crowd.end();
    },
  });
}
