/** One machine after the other is drained under a real job, as an administrator does it. */
import { afterAll, expect, it } from 'vitest';
import {
  apply,
  booksOf,
  follow,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  onKubernetes,
  pods,
  type Told,
  waitFor,
  watched,
} from './cluster.js';
import { readyNodes } from './machines.js';

const JOB = 'drained';

onKubernetes(() => {
  let nodes: string[] = [];
  afterAll(async () => {
    for (const node of nodes) await kubectl('uncordon', node);
  });

  it('nodes are drained one after the other, and the job is redundant all the time', {
    timeout: 25 * MINUTES,
  }, async () => {
    await apply(movieJob(JOB, { seconds: 240, ps: { replicas: 4 } }));
    await waitFor(JOB, '.status.phase', 'Running');
    await waitFor(JOB, '.status.redundancy', 'full');
    await waitFor(JOB, '.status.ps', '4/4');
    // The second one is that of the scheduler, so that it goes while the job may still mend itself.
    const [scheduler] = (await pods(JOB, 'scheduler')).map(({ spec }) => spec.nodeName!);
    const others = (await readyNodes()).filter((name) => name !== scheduler);
    nodes = [others[0]!, scheduler!, others[1]!];
    // A worker that goes takes its log with it.
    const told: Told = new Map();
    const followed = await follow(JOB, told);
    const redundancy = watched(JOB, '.status.redundancy');
    for (const node of nodes) {
      const args = ['--ignore-daemonsets', '--delete-emptydir-data', '--force', '--timeout=300s'];
      await kubectl('drain', node, ...args);
      const left = (await pods(JOB, 'ps')).filter(({ spec }) => spec.nodeName === node);
      expect(left.map(({ metadata }) => metadata.name)).toEqual([]);
      await kubectl('uncordon', node);
    }
    // While a scheduler begins elsewhere nobody says how it is.
    const fine = ['full', 'recovering', 'unknown'];
    expect((await redundancy.stop()).filter((one) => !fine.includes(one))).toEqual([]);
    await waitFor(JOB, '.status.redundancy', 'full');
    await waitFor(JOB, '.status.phase', 'Succeeded', 900);
    await followed();
    await listen(JOB, told);
    // Last reports of a worker may be missing: the ledger is the scheduler's.
    const books = await booksOf(JOB, told);
    expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    expect((await jobOf(JOB)).status).toMatchObject({ restartCount: 0 });
  });
});
