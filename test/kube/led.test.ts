/** The operator that leads is killed in every phase of a real job, and another one leads. */
import { afterAll, expect, it } from 'vitest';
import type { ScalerObject } from '../../src/fleet/operator/types.js';
import {
  apply,
  booksOf,
  bothOperators,
  checkpointsClaim,
  follow,
  get,
  hurry,
  jobOf,
  killOperator,
  kubectl,
  MINUTES,
  movieJob,
  newPs,
  onKubernetes,
  patch,
  pods,
  storyOf,
  type Told,
  until,
  waitFor,
} from './cluster.js';
import { full } from './machines.js';

const JOB = 'led';

/** Kills the operator that leads while another one stands by. The new leader has the job as it is. */
async function another(): Promise<void> {
  await bothOperators();
  await killOperator();
}

async function scale(kind: 'ScaleOut' | 'ScaleIn', name: string, spec: object): Promise<void> {
  const metadata = { name, namespace: 'kintsugi' };
  const whose = { selector: { name: JOB }, role: 'ps', timeoutSeconds: 600 };
  const object = { apiVersion: 'kintsugi.dev/v1alpha1', kind, metadata, spec: { ...whose, ...spec } };
  await apply(JSON.stringify(object));
}
const scaled = (what: string, phase: string): Promise<string> =>
  kubectl('wait', what, `--for=jsonpath={.status.phase}=${phase}`, '--timeout=400s');

onKubernetes(() => {
  afterAll(() => full(false).catch(() => ''));

  it('operators are killed in every phase, and the job goes on: each sample exactly once', {
    timeout: 25 * MINUTES,
  }, async () => {
    await apply(checkpointsClaim());
    // Pending: no machine has room.
    await full(true);
    await apply(movieJob(JOB, { few: true, seconds: 1500, checkpoint: { everySeconds: 0 } }));
    await until(JOB, ({ status }) => status?.currentPs?.length === 4);
    await another();
    await waitFor(JOB, '.status.phase', 'Pending', 30);
    expect((await jobOf(JOB)).status?.currentPs).toHaveLength(4);
    await full(false);
    await waitFor(JOB, '.status.phase', 'Running');
    await waitFor(JOB, '.status.redundancy', 'full');
    await waitFor(JOB, '.status.ps', '4/4');
    const told: Told = new Map();
    const first = await follow(JOB, told);

    // Running: a PS goes together with the one who would replace it.
    const ps = await pods(JOB, 'ps');
    const lost = ps[1]!.metadata.name;
    await bothOperators();
    await Promise.all([killOperator(), kubectl('delete', 'pod', lost, '--grace-period=0', '--force')]);
    expect(await newPs(JOB, ps)).toEqual([`${JOB}-ps-4`]);
    await waitFor(JOB, '.status.ps', '4/4');
    await waitFor(JOB, '.status.redundancy', 'full');

    // Scaling: it waits for a machine.
    await bothOperators();
    await full(true);
    await scale('ScaleOut', 'led-out', { toAdd: { count: 1 } });
    await scaled('scaleout/led-out', 'Scaling');
    await waitFor(JOB, '.status.phase', 'Scaling');
    await killOperator();
    await full(false);
    await scaled('scaleout/led-out', 'ScaleSucceeded');
    await waitFor(JOB, '.status.ps', '5/5');
    const out = await get<ScalerObject>('scaleout', 'led-out');
    expect(out.status).toMatchObject({ from: 4, to: 5, attempt: 0 });
    await bothOperators();
    await scale('ScaleIn', 'led-in', { toDelete: { count: 1 } });
    await scaled('scalein/led-in', 'Draining');
    await killOperator();
    await scaled('scalein/led-in', 'ScaleSucceeded');
    await waitFor(JOB, '.status.ps', '4/4');

    // Suspended: on the way, when it is so, and on the way back.
    await bothOperators();
    await patch(JOB, { runPolicy: { suspend: true } });
    await until(JOB, ({ status }) => status?.conditions?.some(({ type }) => type === 'Suspended') ?? false);
    await killOperator();
    await waitFor(JOB, '.status.phase', 'Suspended');
    await first();
    await another();
    expect(await pods(JOB)).toEqual([]);
    expect((await jobOf(JOB)).status).toMatchObject({ phase: 'Suspended', redundancy: 'none', ps: '0/4' });
    await bothOperators();
    await patch(JOB, { runPolicy: { suspend: false } });
    await killOperator();
    await waitFor(JOB, '.status.phase', 'Running');
    const second = await follow(JOB, told);
    await hurry(JOB);
    await waitFor(JOB, '.status.phase', 'Succeeded');
    await second();
    expect(await booksOf(JOB, told, { few: true })).toMatchObject({ exactlyOnce: true, problems: [] });
    await another();
    await patch(JOB, { runPolicy: { cleanPodPolicy: 'All' } });
    for (const { metadata } of await pods(JOB))
      await kubectl('wait', '--for=delete', `pod/${metadata.name}`, '--timeout=120s');

    // Conditions and events tell the story.
    const { status } = await jobOf(JOB);
    expect(status).toMatchObject({ phase: 'Succeeded', life: 2, restartCount: 0 });
    const conditions = Object.fromEntries(status!.conditions!.map((one) => [one.type, one]));
    expect(conditions).toMatchObject({
      Succeeded: { status: 'True', reason: 'Complete' },
      Suspended: { status: 'False', reason: 'Resumed' },
      Scaling: { status: 'False', reason: 'Settled' },
    });
    expect(await storyOf(JOB)).toEqual(
      expect.arrayContaining([
        ...['Running', 'Scaling', 'RedundantFull', 'SuspendedStoppingWorkers', 'SuspendedSaving'],
        ...['Suspended', 'SuspendedResumed', 'Succeeded'],
      ]),
    );
  });
});
