/**
 * Spot machines in two pools, of PS and of workers: a third of them is taken, each after a notice.
 * KINTSUGI_SPOT_MINUTES: in so many minutes, 10 by default; SHORT: in one.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, expect, it } from 'vitest';
import {
  apply,
  booksOf,
  hurry,
  jobOf,
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
import { watchDeletions } from './deletions.js';
import { canAdd, forget, lose, mend, mendMachines, readyNodes } from './machines.js';

const { KINTSUGI_SPOT_MINUTES, SHORT } = process.env;
const WINDOW_MS = Number(KINTSUGI_SPOT_MINUTES ?? (SHORT ? 1 : 10)) * MINUTES;
/** From a notice to the end of the machine; AWS gives 120 s, GKE and AKS 30 s. */
const NOTICE_MS = Math.min(30_000, WINDOW_MS / 4);
const JOB = 'spot';
if (present && !canAdd)
  console.warn('SKIPPED: no spot machines are taken, KINTSUGI_TEST_LOSE and KINTSUGI_TEST_ADD are not there');

/** Ways to say that a machine is about to go: what clouds and their handlers do, and a notice of ours. */
const taint = (key: string) => (node: string) => kubectl('taint', 'node', node, `${key}=:NoSchedule`);
const NOTICES: Record<string, (node: string) => Promise<string>> = {
  GKE: taint('cloud.google.com/impending-node-termination'),
  EKS: taint('aws-node-termination-handler/spot-itn'),
  AKS: taint('remediator.kubernetes.azure.com/unschedulable'),
  Karpenter: taint('karpenter.sh/disrupted'),
  'an annotation': (node) => kubectl('annotate', 'node', node, 'kintsugi.dev/reclaim=soon'),
};

/** Two thirds of the machines are for PS, the others for workers. The scheduler goes where there is room. */
async function pool(nodes: readonly string[]): Promise<void> {
  for (const [index, node] of nodes.entries())
    await kubectl('label', 'node', node, `pool=${index % 3 === 2 ? 'worker' : 'ps'}`, '--overwrite');
}

onKubernetes(() => {
  mendMachines();
  afterAll(async () => {
    if (canAdd) await kubectl('label', 'nodes', '--all', 'pool-').catch(() => '');
  });

  it.skipIf(!canAdd)(
    `a third of the machines is taken in ${WINDOW_MS / MINUTES} minutes, and every sample counts once`,
    { timeout: WINDOW_MS + 20 * MINUTES },
    async () => {
      const nodes = await readyNodes();
      expect(nodes.length).toBeGreaterThanOrEqual(6);
      await pool(nodes);
      const seconds = Math.ceil((3 * WINDOW_MS) / 1000);
      await apply(movieJob(JOB, { few: true, seconds, pools: true }));
      await waitFor(JOB, '.status.phase', 'Running', 600);
      const told: Told = new Map();
      const taken = new Set<string>();
      const deletions = watchDeletions(({ spec }) => taken.has(spec.nodeName ?? ''));
      const [scheduler] = await pods(JOB, 'scheduler');
      // With a claim its machine is no spot machine.
      const stays = scheduler!.spec.nodeName;
      const spots = nodes.filter((node) => node !== stays);
      const count = Math.ceil(nodes.length / 3);
      const kinds = Object.keys(NOTICES);
      for (let index = 0; index < count; index++) {
        await until(JOB, ({ status }) => status?.redundancy === 'full' && whole(status.ps));
        const began = performance.now();
        // PS first, then one of the workers, and so on.
        const role = index % 2 === 0 ? 'ps' : 'worker';
        const busy = (await pods(JOB, role)).map(({ spec }) => spec.nodeName);
        const node = spots.find((one) => busy.includes(one) && !taken.has(one))!;
        const kind = kinds[(index + Date.now()) % kinds.length]!;
        await listen(JOB, told);
        await NOTICES[kind]!(node);
        await pause(NOTICE_MS);
        const left = (await pods(JOB, 'ps')).filter(({ spec }) => spec.nodeName === node);
        taken.add(node);
        await lose(node);
        console.log({ node, role, notice: kind, psLeft: left.length });
        await pause(2000);
        await forget(node);
        await mend();
        await kubectl('label', 'node', node, `pool=${role}`, '--overwrite');
        await pause(Math.max(0, WINDOW_MS / count - (performance.now() - began)));
      }
      await until(JOB, ({ status }) => status?.redundancy === 'full' && whole(status.ps));
      await hurry(JOB);
      await waitFor(JOB, '.status.phase', 'Succeeded', 900);
      const books = await booksOf(JOB, await listen(JOB, told), { few: true });
      expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
      const seen = await deletions.stop();
      console.log({ taken: [...taken], redone: (await jobOf(JOB)).status?.progress?.redone, ...seen });
      expect(seen.wrong).toEqual([]);
    },
  );
});
