/** Gateways whose programs ask for many rows and are stopped then. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Child } from '../../../src/fleet/local/child.js';
import type { Attack, AttackedJob } from './attack.js';
import { byCrowd, Crowd } from './crowd.js';
import type { AttackProgramOptions } from './program.js';
import { BROAD_TABLE, filled } from './pulls.js';

const GATEWAYS = 2;
/** As many as a gateway takes of one program at once, and again as many. */
const REQUESTS = 512;

export function stoppedProgram(job: AttackedJob): Attack {
  const crowd = new Crowd('program');
  const gateways: Child[] = [];
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-overload-'));
  return byCrowd(crowd, {
    name: 'stopped-program',
    pids: () => [...crowd.pids(), ...gateways.flatMap(({ pid }) => pid ?? [])],
    abort() {
      crowd.signal('SIGKILL');
      for (const gateway of gateways) gateway.kill();
    },
    watched: () => new Map(gateways.flatMap(({ name, pid }) => (pid === undefined ? [] : [[name, pid]]))),
    prepare: () => filled(job, BROAD_TABLE),
    async start() {
      const programs: AttackProgramOptions[] = [];
      for (let i = 0; i < job.scaled(GATEWAYS); i++) {
        const socket = join(directory, `${i}`);
        const args = ['gateway', '--scheduler', job.address, '--socket', socket];
        gateways.push(new Child({ name: `gateway-${i}`, args, onEvent: (_, line) => job.onLine(line) }));
        const { name, rows } = BROAD_TABLE;
        programs.push({ socket, table: name, keys: rows, requests: REQUESTS });
      }
      await Promise.all(gateways.map((gateway) => gateway.event('gateway.ready')));
      await crowd.start(programs, 'asked');
      crowd.signal('SIGSTOP');
    },
    async stop() {
      const outcome = await crowd.kill();
      await Promise.all(gateways.map((gateway) => gateway.stop()));
      rmSync(directory, { recursive: true, force: true });
      return outcome;
    },
  });
}
