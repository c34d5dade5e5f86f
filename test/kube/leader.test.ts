/**
 * The machine of the scheduler that leads, and of a PS, vanishes while another scheduler stands by. How long
 * is nothing trained? KINTSUGI_TEST_ETCD: an etcd that Pods reach, as etcd://host:port, on no machine of the
 * cluster. KINTSUGI_GOALS_ROUNDS: so many machines, one after the other.
 */
import { loadavg } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { Pod } from '../../src/fleet/operator/objects.js';
import {
  apply,
  booksOf,
  hurry,
  isServing,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  onKubernetes,
  pods,
  present,
  type Told,
  until,
  waitFor,
  whole,
} from './cluster.js';
import { canAdd, forget, lose, mend, mendMachines, readyNodes } from './machines.js';
import { probe } from './probe.js';

const { KINTSUGI_TEST_ETCD: ETCD, KINTSUGI_GOALS_ROUNDS: ROUNDS = '3' } = process.env;
if (present && !ETCD) console.warn('SKIPPED: no leader vanishes, KINTSUGI_TEST_ETCD names no etcd');
const JOB = 'led-away';

/** The Pod of the scheduler that leads: the one that stands by is not ready. */
async function leading(): Promise<Pod> {
  for (;;) {
    const found = (await pods(JOB, 'scheduler')).find(isServing);
    if (found) return found;
    await pause(500);
  }
}

onKubernetes(() => {
  mendMachines();

  it.skipIf(!canAdd || !ETCD)(
    'the machine of the leader and of a PS vanishes: pulls wait some seconds, and nothing is lost',
    { timeout: 25 * MINUTES },
    async () => {
      const etcd = { url: `${ETCD}/kintsugi-test/${Date.now()}`, schedulers: 2 };
      const more = { scheduler: { store: { etcd } } };
      // One on each machine: so the leader has one beside it.
      const ps = { replicas: (await readyNodes()).length };
      await apply(movieJob(JOB, { few: true, seconds: 900, ps, more }));
      await waitFor(JOB, '.status.phase', 'Running', 400);
      const told: Told = new Map();
      const waits: number[] = [];
      for (let round = 0; round < Number(ROUNDS); round++) {
        await waitFor(JOB, '.status.redundancy', 'full', 400);
        await until(JOB, ({ status }) => whole(status?.ps) && whole(status?.workers));
        const leader = await leading();
        const machine = leader.spec.nodeName!;
        const beside = (await pods(JOB, 'ps')).filter(({ spec }) => spec.nodeName === machine);
        const others = (await pods(JOB, 'worker')).filter(({ spec }) => spec.nodeName !== machine);
        if (beside.length !== 1 || others.length === 0) {
          // Another scheduler leads then, or a worker has another machine.
          const other = beside.length === 1 ? (await pods(JOB, 'worker'))[0]! : leader;
          await kubectl('delete', 'pod', other.metadata.name);
          await pause(5000);
          round--;
          continue;
        }
        const env = others[0]!.spec.containers![0]!.env!;
        const address = env.find(({ name }) => name === 'KINTSUGI_SCHEDULER')!.value!;
        await listen(JOB, told);
        const probing = await probe(others[0]!.metadata.name, address);
        const load = loadavg()[0]!.toFixed(1);
        const wait = await probing.since(async () => {
          await lose(machine);
          await pause(15_000);
        });
        probing.stop();
        waits.push(wait);
        console.log({ machine, ps: beside.length, longestWaitMs: Math.round(wait), load });
        await forget(machine);
        await mend();
      }
      console.log(`| the machine of the leader and a PS, etcd | ${waits.map(Math.round).join(', ')} ms |`);
      expect(Math.max(...waits)).toBeLessThan(30_000);
      await hurry(JOB);
      await waitFor(JOB, '.status.phase', 'Succeeded', 900);
      const books = await booksOf(JOB, await listen(JOB, told), { few: true });
      expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    },
  );
});
