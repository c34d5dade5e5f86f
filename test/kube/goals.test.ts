/**
 * The times in docs/kubernetes.md: `npm run test:kube:goals` measures them and prints a table, with the load
 * of the machine. It asserts that nothing is lost, and no time.
 */
import { loadavg } from 'node:os';
import { afterAll, expect, it } from 'vitest';
import {
  apply,
  booksOf,
  follow,
  hurry,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  NAMESPACE,
  newPs,
  onKubernetes,
  pods,
  type Told,
  until,
  waitFor,
} from './cluster.js';
import { canAdd, full, lose, mend, mendMachines } from './machines.js';
import { probe, watchRedundancy } from './probe.js';

const JOB = 'goals';
const ROUNDS = Number(process.env.KINTSUGI_GOALS_ROUNDS ?? 5);

const table: string[][] = [];
const tell = (): void =>
  console.log(
    `load ${loadavg()[0]!.toFixed(1)}\n${table.map(([what, value]) => `| ${what} | ${value} |`).join('\n')}`,
  );
const ms = (value: number): string =>
  value < 10_000 ? `${value.toFixed(0)} ms` : `${(value / 1000).toFixed(1)} s`;
const middle = (values: readonly number[]): string => {
  const sorted = [...values].sort((a, b) => a - b);
  return `${ms(sorted[Math.floor(sorted.length / 2)]!)} (${ms(sorted[0]!)} to ${ms(sorted.at(-1)!)})`;
};

/**
 * Time at which the first batch of the job was trained, by the clock of the node. It is asked for once in a
 * second, because each question takes a tenth of a second of the processor time that is measured.
 */
async function firstBatch(job: string): Promise<number> {
  for (;;) {
    for (const { metadata } of await pods(job, 'worker')) {
      const args = ['logs', metadata.name, '-c', 'kintsugi', '--timestamps'];
      const lines = (await kubectl(...args).catch(() => '')).split('\n');
      const first = lines.find((line) => /"event":"worker.progress"/.test(line));
      if (first) return Date.parse(first.split(' ')[0]!);
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

onKubernetes(() => {
  mendMachines();
  afterAll(async () => {
    tell();
    await full(false).catch(() => '');
  });

  it('from kubectl apply to the first trained batch', { timeout: 15 * MINUTES }, async () => {
    const took: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const name = `begins-${round}`;
      const began = Date.now();
      await apply(movieJob(name, { few: true, seconds: 60 }));
      took.push((await firstBatch(name)) - began);
      await kubectl('delete', 'trainingjob', name);
      await kubectl('wait', '--for=delete', 'pod', '-l', `kintsugi.dev/job=${name}`, '--timeout=120s');
    }
    table.push(['from `kubectl apply` to the first trained batch', middle(took)]);
  });

  it('PS are lost while no replacement finds a machine, and PS are added', {
    timeout: 25 * MINUTES,
  }, async () => {
    await apply(movieJob(JOB, { few: true, seconds: 2000, ps: { replicas: 4 } }));
    const wellWith = async (count: number) => {
      await waitFor(JOB, '.status.ps', `${count}/${count}`);
      await waitFor(JOB, '.status.redundancy', 'full');
    };
    await waitFor(JOB, '.status.phase', 'Running');
    await wellWith(4);
    const told: Told = new Map();
    const followed = await follow(JOB, told);
    const probing = await probe(`${JOB}-scheduler-0`);
    const quiet = await probing.since(() => new Promise((resolve) => setTimeout(resolve, 5000)));
    table.push(['longest wait of a pull while nothing happens', ms(quiet)]);

    const lost: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const ps = await pods(JOB, 'ps');
      const victim = ps[round % ps.length]!.metadata.name;
      await full(true);
      const wait = await probing.since(async () => {
        await kubectl('delete', 'pod', victim, '--grace-period=0', '--force');
        const [fresh = ''] = await newPs(JOB, ps);
        await waitFor(JOB, '.status.redundancy', 'full');
        const { phase } = (await pods(JOB, 'ps')).find(({ metadata }) => metadata.name === fresh)!.status!;
        expect(phase).toBe('Pending');
      });
      lost.push(wait);
      await full(false);
      await wellWith(4);
    }
    table.push([
      'a PS Pod is deleted by force: longest wait of a pull, its replacement pending',
      middle(lost),
    ]);

    const out: number[] = [];
    const moved: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const count = 5 + round;
      out.push(
        await probing.since(async () => {
          const at = performance.now();
          const spec = { selector: { name: JOB }, role: 'ps', toAdd: { count: 1 } };
          const metadata = { name: `goal-${round}`, namespace: NAMESPACE };
          await apply(
            JSON.stringify({ apiVersion: 'kintsugi.dev/v1alpha1', kind: 'ScaleOut', metadata, spec }),
          );
          const done = '--for=jsonpath={.status.phase}=ScaleSucceeded';
          await kubectl('wait', `scaleout/goal-${round}`, done, '--timeout=240s');
          moved.push(performance.now() - at);
        }),
      );
      await wellWith(count);
    }
    table.push(['a PS more: until it has its share', middle(moved)]);
    table.push(['a PS more: longest wait of a pull meanwhile', middle(out)]);
    probing.stop();
    await hurry(JOB);
    await waitFor(JOB, '.status.phase', 'Succeeded');
    await followed();
    await listen(JOB, told);
    const { status } = await until(JOB, () => true);
    expect(status).toMatchObject({ restartCount: 0 });
    const books = await booksOf(JOB, told, { few: true });
    expect(books).toMatchObject({ exactlyOnce: true, problems: [] });
    table.push(['samples trained again, of all of it', String((await jobOf(JOB)).status?.progress?.redone)]);
    tell();
  });

  it.skipIf(!canAdd)('a machine with a PS vanishes', { timeout: 25 * MINUTES }, async () => {
    const name = 'vanishes';
    await apply(movieJob(name, { few: true, seconds: 900, ps: { replicas: 4 } }));
    await waitFor(name, '.status.phase', 'Running');
    const [full, waits]: number[][] = [[], []];
    const told: Told = new Map();
    for (let round = 0; round < ROUNDS; round++) {
      await waitFor(name, '.status.ps', '4/4');
      await waitFor(name, '.status.redundancy', 'full');
      const [scheduler] = await pods(name, 'scheduler');
      const apart = (await pods(name, 'ps')).filter(({ spec }) => spec.nodeName !== scheduler!.spec.nodeName);
      const machine = apart[round % apart.length]!.spec.nodeName!;
      await listen(name, told);
      const watch = await watchRedundancy(scheduler!.metadata.name);
      const probing = await probe(scheduler!.metadata.name);
      const wait = await probing.since(async () => {
        const at = Date.now();
        await lose(machine);
        full!.push((await watch.fullAgain()) - at);
      });
      waits!.push(wait);
      watch.stop();
      probing.stop();
      await mend();
    }
    table.push(['a machine with a PS vanishes: redundancy full again', middle(full!)]);
    table.push(['a machine with a PS vanishes: longest wait of a pull', middle(waits!)]);
    await hurry(name);
    await waitFor(name, '.status.phase', 'Succeeded', 900);
    const books = await booksOf(name, await listen(name, told), { few: true });
    expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    tell();
  });
});
