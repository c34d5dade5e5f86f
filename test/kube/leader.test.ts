/**
 * The machine of the scheduler that leads, and of a PS, vanishes while another scheduler stands by. How long
 * is nothing trained? KINTSUGI_TEST_ETCD: an etcd that Pods reach, as etcd://host:port, on no machine of the
 * cluster. KINTSUGI_GOALS_ROUNDS: so many machines, one after the other.
 */
import { loadavg } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, expect, it } from 'vitest';
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
  afterAll(async () => {
    await kubectl('label', 'nodes', '--all', 'pool-').catch(() => '');
    await kubectl('taint', 'nodes', '--all', 'pool-').catch(() => '');
  });

  it.skipIf(!canAdd || !ETCD)(
    'the machine of the leader and of a PS vanishes: pulls wait some seconds, and nothing is lost',
    { timeout: 25 * MINUTES },
    async () => {
      const etcd = { url: `${ETCD}/kintsugi-test/${Date.now()}`, schedulers: 2 };
      const more = { scheduler: { store: { etcd } } };
      const nodes = await readyNodes();
      // Workers have two machines of their own. Each other one has a PS, so the leader has one beside it.
      for (const [index, node] of nodes.entries()) {
        await kubectl('label', 'node', node, `pool=${index < 2 ? 'worker' : 'ps'}`, '--overwrite');
        if (index < 2) await kubectl('taint', 'node', node, 'pool=worker:NoSchedule', '--overwrite');
      }
      const apart = {
        topologyKey: 'kubernetes.io/hostname',
        labelSelector: { matchLabels: { 'kintsugi.dev/job': JOB, 'kintsugi.dev/role': 'ps' } },
      };
      const affinity = { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [apart] } };
      const template = { spec: { nodeSelector: { pool: 'ps' }, affinity } };
      const ps = { replicas: nodes.length - 2, template };
      await apply(movieJob(JOB, { few: true, seconds: 900, pools: true, ps, more }));
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
        expect([beside.length, others.length]).toEqual([1, 2]);
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
        await kubectl('label', 'node', machine, 'pool=ps', '--overwrite');
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
