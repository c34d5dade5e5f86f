/**
 * Machines vanish under a real job, and come back. KINTSUGI_TEST_ETCD: an etcd that Pods reach, as
 * etcd://host:port.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { Pod } from '../../src/fleet/operator/objects.js';
import {
  apply,
  booksOf,
  hurry,
  isServing,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  newPs,
  onKubernetes,
  pods,
  storyOf,
  type Told,
  until,
  waitFor,
} from './cluster.js';
import { canCut, canLose, cut, forget, join, lose, mendMachines, zones } from './machines.js';

/** Begins a job, until it trains and could lose what it may. */
async function begin(name: string, shape: Parameters<typeof movieJob>[1], ps: string): Promise<void> {
  await apply(movieJob(name, { few: true, seconds: 400, ...shape }));
  await waitFor(name, '.status.phase', 'Running', 400);
  await waitFor(name, '.status.redundancy', 'full');
  await waitFor(name, '.status.ps', ps);
}

/**
 * Checks that each sample was trained once. Last reports of a worker may be lost: the ledger is the
 * scheduler's.
 */
async function endsExactlyOnce(name: string, told: Told): Promise<void> {
  await hurry(name);
  await waitFor(name, '.status.phase', 'Succeeded', 900);
  await listen(name, told);
  const books = await booksOf(name, told, { few: true });
  expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
  expect(await jobOf(name)).toMatchObject({ status: { redundancy: 'full', progress: { percentage: 100 } } });
}

const machinesOf = async (job: string, role: string): Promise<Set<string>> =>
  new Set((await pods(job, role)).map(({ spec }) => spec.nodeName!));

const { KINTSUGI_TEST_ETCD: ETCD } = process.env;
if (canLose && !ETCD) console.warn('SKIPPED: no job is kept in etcd, KINTSUGI_TEST_ETCD names none');

/** The scheduler that leads, of several: those that stand by are not ready. */
const leaderOf = async (job: string): Promise<Pod | undefined> =>
  (await pods(job, 'scheduler')).find(isServing);
/** Resolves with the scheduler that leads in place of this one. */
async function leaderAfter(job: string, before: Pod): Promise<Pod> {
  for (;;) {
    const found = await leaderOf(job);
    if (found && found.metadata.name !== before.metadata.name) return found;
    await pause(500);
  }
}
/** Resolves when both run. */
const bothSchedulers = (job: string) =>
  until(job, ({ status }) => status?.replicaStatuses?.scheduler?.active === 2);

onKubernetes(() => {
  mendMachines();

  it.skipIf(!canLose)(
    'the machine of the scheduler vanishes: it goes on elsewhere with its volume',
    {
      timeout: 20 * MINUTES,
    },
    async () => {
      await begin('moved', {}, '4/4');
      const told = await listen('moved');
      const [machine = ''] = await machinesOf('moved', 'scheduler');
      await lose(machine);
      await waitFor('moved', '.status.redundancy', 'unknown', 60);
      await forget(machine);
      await until('moved', ({ status }) => status?.redundancy === 'full');
      const elsewhere = await machinesOf('moved', 'scheduler');
      expect(elsewhere.has(machine)).toBe(false);
      expect((await machinesOf('moved', 'ps')).has(machine)).toBe(false);
      await endsExactlyOnce('moved', told);
      expect(await storyOf('moved')).toEqual(expect.arrayContaining(['RedundantUnknown', 'RedundantFull']));
    },
  );

  it.skipIf(!canLose || !ETCD)(
    'the machine of the scheduler vanishes: another one leads at once, by etcd',
    {
      timeout: 20 * MINUTES,
    },
    async () => {
      const url = `${ETCD}/kintsugi-test/${Date.now()}`;
      await begin('kept', { more: { scheduler: { store: { etcd: { url, schedulers: 2 } } } } }, '4/4');
      await bothSchedulers('kept');
      const told = await listen('kept');
      const first = (await leaderOf('kept'))!;
      const ps = await pods('kept', 'ps');
      const machine = first.spec.nodeName!;
      const there = ps.filter(({ spec }) => spec.nodeName === machine).length;
      await lose(machine);
      // Nobody deletes the Node: the one that stood by repairs what the machine had.
      await newPs('kept', ps, there);
      await waitFor('kept', '.status.redundancy', 'full');
      await waitFor('kept', '.status.ps', '4/4');
      // A machine on which there was no PS is told of only by Kubernetes, after a while.
      const second = await leaderAfter('kept', first);
      expect(second.spec.nodeName).not.toBe(machine);
      await forget(machine);
      await bothSchedulers('kept');
      await endsExactlyOnce('kept', told);
    },
  );

  it.skipIf(!canCut)(
    'a machine is cut off, is replaced, and comes back with its old Pods',
    {
      timeout: 20 * MINUTES,
    },
    async () => {
      await begin('parted', {}, '4/4');
      const told = await listen('parted');
      const spared = await machinesOf('parted', 'scheduler');
      const ps = await pods('parted', 'ps');
      const machine = ps.find(({ spec }) => !spared.has(spec.nodeName!))!.spec.nodeName!;
      const there = (await pods('parted')).filter(({ spec }) => spec.nodeName === machine);
      await cut(machine);
      await Promise.all([newPs('parted', ps), pause(20_000)]);
      await waitFor('parted', '.status.redundancy', 'full');
      await join(machine);
      // The job has given these PS up: a PS that comes back is told to go, and goes.
      for (const { metadata } of there)
        await kubectl('wait', '--for=delete', `pod/${metadata.name}`, '--timeout=120s');
      await waitFor('parted', '.status.ps', '4/4');
      await endsExactlyOnce('parted', told);
    },
  );

  it.skipIf(!canLose)(
    'a zone of three vanishes under 4+2: nothing is lost',
    {
      timeout: 20 * MINUTES,
    },
    async (context) => {
      const there = await zones();
      if (there.size < 3 || [...there.values()].some((nodes) => nodes.length < 2)) {
        console.warn('SKIPPED: no zone is lost, the cluster has no three of two machines each');
        return context.skip();
      }
      const shape = { code: { k: 4, r: 2 }, ps: { replicas: 6 }, more: { failureDomain: 'zone/node' } };
      await begin('zones', shape, '6/6');
      const told = await listen('zones');
      const spared = await machinesOf('zones', 'scheduler');
      const ps = await pods('zones', 'ps');
      const on = (nodes: string[]) => ps.filter(({ spec }) => nodes.includes(spec.nodeName!)).length;
      const zone = [...there.values()].find((nodes) => !nodes.some((one) => spared.has(one)))!;
      expect(on(zone)).toBe(2);
      await lose(...zone);
      await newPs('zones', ps, on(zone));
      await waitFor('zones', '.status.redundancy', 'full');
      await endsExactlyOnce('zones', told);
      expect((await storyOf('zones')).some((one) => /^Redundant(Degraded|Recovering)$/.test(one))).toBe(true);
    },
  );
});
