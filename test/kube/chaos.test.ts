/**
 * Jobs train while machines, operators and the control plane come and go: `npm run test:kube:chaos`.
 * KINTSUGI_CHAOS_MINUTES: for so long, 10 by default. KINTSUGI_CHAOS_SEED: what is drawn. The same seed draws
 * the same numbers; what they meet depends on how fast the jobs are. KINTSUGI_CHAOS_REPORT: a file that gets
 * the counts as JSON, for `kintsugi bench kube-chaos`.
 */
import { writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { TrainingJob } from '../../src/fleet/operator/types.js';
import { randomOf } from '../fleet/operator/server.js';
import {
  apply,
  booksOf,
  get,
  jobOf,
  kubectl,
  type Lease,
  leader,
  listen,
  MINUTES,
  movieJob,
  NAMESPACE,
  onKubernetes,
  pods,
  present,
  run,
  storyOf,
  type Told,
  touchHurry,
  waitFor,
  whole,
} from './cluster.js';
import { watchDeletions } from './deletions.js';
import {
  canAdd,
  canCut,
  canRestart,
  cut,
  forget,
  join,
  lose,
  mend,
  mendMachines,
  missing,
  readyNodes,
  restart,
} from './machines.js';

const LASTS = Number(process.env.KINTSUGI_CHAOS_MINUTES ?? 10) * MINUTES;
const SEED = Number(process.env.KINTSUGI_CHAOS_SEED ?? Date.now() % 1_000_000);
const JOBS = ['chaos-a', 'chaos-b', 'chaos-c'];
const EPOCHS = 5;
/** Milliseconds until a job misses a machine that says nothing any more. */
const MISSED_MS = 15_000;

if (present && !canAdd)
  console.warn('SKIPPED: chaos loses no machine, KINTSUGI_TEST_LOSE and KINTSUGI_TEST_ADD name no commands');
if (present && !canRestart)
  console.warn('SKIPPED: chaos restarts nothing, KINTSUGI_TEST_STOP and KINTSUGI_TEST_START are not there');

/** PS Pods that the test kills or evicts, and machines that it takes. */
const struck = new Set<string>();
const taken = new Set<string>();
const random = randomOf(SEED);
const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)];
/** A drawn number of milliseconds. */
const between = (least: number, most: number): number => Math.round(least + random() * (most - least));

interface Fault {
  name: string;
  /** A job may be lost by two of these at once: there is one when every job could bear it. */
  hard: boolean;
  can: boolean;
  /** Resolves when it is over, with what it met. Undefined: there was nothing to do. */
  happen(): Promise<string | undefined>;
}

const FAULTS: Fault[] = [
  {
    ...{ name: 'a machine vanishes', hard: true, can: canAdd },
    async happen() {
      const nodes = await readyNodes();
      const node = nodes.length > 4 ? pick(nodes) : undefined;
      if (node === undefined) return undefined;
      taken.add(node);
      await lose(node);
      const after = between(1000, 20_000);
      await pause(after);
      await forget(node);
      return `${node}, and is forgotten after ${after} ms`;
    },
  },
  {
    ...{ name: 'machines are added', hard: false, can: canAdd },
    async happen() {
      const names = missing().join(' ');
      if (names === '') return undefined;
      await mend();
      return names;
    },
  },
  {
    ...{ name: 'a machine is cut off', hard: true, can: canCut },
    async happen() {
      const node = pick(await readyNodes());
      if (node === undefined) return undefined;
      const ms = between(1000, 30_000);
      taken.add(node);
      await cut(node);
      await pause(ms);
      await join(node);
      return `${node} for ${ms} ms`;
    },
  },
  {
    ...{ name: 'a PS is killed', hard: true, can: true },
    async happen() {
      const pod = pick(await pods(pick(JOBS)!, 'ps'));
      if (!pod) return undefined;
      struck.add(pod.metadata.name);
      await kubectl('delete', 'pod', pod.metadata.name, '--grace-period=0', '--force', '--ignore-not-found');
      return pod.metadata.name;
    },
  },
  {
    ...{ name: 'the operator is killed', hard: false, can: true },
    async happen() {
      const name = await leader();
      if (name === '') return undefined;
      await kubectl('delete', 'pod', name, '--grace-period=0', '--force', '--ignore-not-found');
      return name;
    },
  },
  {
    ...{ name: 'the API server restarts', hard: false, can: canRestart },
    async happen() {
      const ms = between(500, 6000);
      await restart('kube-apiserver', ms);
      return `after ${ms} ms`;
    },
  },
  {
    ...{ name: 'its etcd restarts', hard: false, can: canRestart },
    async happen() {
      const ms = between(500, 6000);
      await restart('etcd', ms);
      return `after ${ms} ms`;
    },
  },
  {
    ...{ name: 'a Pod is evicted', hard: false, can: true },
    async happen() {
      const pod = pick(await pods(pick(JOBS)!));
      if (!pod) return undefined;
      const { name } = pod.metadata;
      struck.add(name);
      const metadata = { name, namespace: NAMESPACE };
      const eviction = JSON.stringify({ apiVersion: 'policy/v1', kind: 'Eviction', metadata });
      const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}/eviction`;
      const answer = await run('kubectl', ['create', '--raw', path, '-f', '-'], eviction).then(
        () => 'goes',
        (error: Error) => (/disruption budget/.test(error.message) ? 'is held' : 'is gone already'),
      );
      return `${name} ${answer}`;
    },
  },
];

/**
 * The operator that leads, and since when: the status that another one has written may be older than the last
 * fault.
 */
let led = { by: '', at: 0 };

/** Whether each job could lose a PS now, as an operator says that has looked since the last fault. */
async function allBear(): Promise<boolean> {
  const { metadata, spec } = await get<Lease>('lease', 'kintsugi-operator');
  const { items } = await get<{ items: TrainingJob[] }>('trainingjobs');
  if (led.by !== spec.holderIdentity) led = { by: spec.holderIdentity, at: performance.now() };
  await pause(4000);
  const renewed = (await get<Lease>('lease', 'kintsugi-operator')).metadata.resourceVersion;
  const lives = renewed !== metadata.resourceVersion && performance.now() - led.at > MISSED_MS;
  return lives && items.every(({ status }) => status?.redundancy === 'full' && whole(status.ps));
}

onKubernetes(() => {
  mendMachines();

  it(`three jobs end exactly once after ${LASTS / MINUTES} minutes of chaos, seed ${SEED}`, {
    timeout: LASTS + 25 * MINUTES,
  }, async () => {
    const seconds = Math.ceil((3 * LASTS) / 1000 / EPOCHS);
    const shape = { few: true, epochs: EPOCHS, seconds, ps: { replicas: 4 } };
    for (const job of JOBS) await apply(movieJob(job, { ...shape, runPolicy: { backoffLimit: 50 } }));
    for (const job of JOBS) {
      await waitFor(job, '.status.phase', 'Running', 600);
      await waitFor(job, '.status.ps', '4/4', 600);
    }
    const told: Told[] = JOBS.map(() => new Map());
    const load = loadavg()[0]!;
    const deletions = watchDeletions(
      ({ metadata, spec }) => struck.has(metadata.name) || taken.has(spec.nodeName ?? ''),
    );
    const began = performance.now();
    const tell = (text: string): void =>
      console.log(`${((performance.now() - began) / 1000).toFixed(1).padStart(7)} s  ${text}`);
    tell(`seed ${SEED}`);
    const counts = new Map<string, number>();
    let hardAt = Number.NEGATIVE_INFINITY;
    while (performance.now() - began < LASTS) {
      const ready = performance.now() - hardAt > MISSED_MS && (await allBear().catch(() => false));
      const fault = pick(FAULTS.filter(({ hard, can }) => can && (ready || !hard)))!;
      // Half of the soft faults are left out, so that jobs get well again.
      if (!fault.hard && random() < 0.5) {
        await pause(between(500, 2000));
        continue;
      }
      if (fault.hard) hardAt = performance.now();
      const met = await fault.happen().catch((error: Error) => `failed: ${error.message}`);
      if (met === undefined) continue;
      if (fault.hard) hardAt = performance.now();
      counts.set(fault.name, (counts.get(fault.name) ?? 0) + 1);
      tell(`${fault.name}: ${met}`);
      for (const [index, job] of JOBS.entries()) await listen(job, told[index]!).catch(() => undefined);
      await pause(between(500, 8000));
    }
    tell(`over: ${[...counts].map(([name, count]) => `${name} ${count}`).join(', ')}`);
    await mend();
    const going = new Set(JOBS);
    while (going.size > 0) {
      for (const job of [...going]) {
        const { status } = await jobOf(job);
        if (status?.phase === 'Succeeded' || status?.phase === 'Failed') going.delete(job);
        else await touchHurry(job);
      }
      await pause(3000);
    }
    const seen = await deletions.stop();
    tell(`PS Pods told to end: ${seen.seen}, held against the map: ${seen.compared}`);
    const jobs: object[] = [];
    const report = () => {
      const file = process.env.KINTSUGI_CHAOS_REPORT;
      const faults = Object.fromEntries(counts);
      const all = { seed: SEED, minutes: LASTS / MINUTES, load, faults, deletions: seen, jobs };
      if (file !== undefined) writeFileSync(file, JSON.stringify(all));
    };
    for (const [index, job] of JOBS.entries()) {
      await listen(job, told[index]!);
      const { status } = await jobOf(job);
      tell(`${job}: ${status?.phase}, restarts ${status?.restartCount}, redone ${status?.progress?.redone}`);
      expect(status).toMatchObject({ phase: 'Succeeded', progress: { percentage: 100, complete: true } });
      // Last reports of a worker may be lost with its machine: the ledger is the scheduler's.
      const books = await booksOf(job, told[index]!, { few: true, epochs: EPOCHS });
      const { trained, expected, setAside } = books;
      const { restartCount = 0, progress } = status!;
      jobs.push({ job, expected, trained, setAside, restarts: restartCount, redone: progress!.redone });
      report();
      expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
      expect(await storyOf(job)).toContain('Succeeded');
    }
    expect(seen.wrong).toEqual([]);
  });
});
