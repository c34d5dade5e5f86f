/** A real job gets PS and workers by ScaleOut, and gives them up by ScaleIn, while it trains. */
import { afterAll, expect, it } from 'vitest';
import type { KubeObject } from '../../src/fleet/operator/objects.js';
import type { ScalerObject } from '../../src/fleet/operator/types.js';
import {
  apply,
  booksOf,
  get,
  hurry,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  onKubernetes,
  pods,
  waitFor,
} from './cluster.js';
import { full } from './machines.js';

const JOB = 'scaled';

const scaler = (kind: 'ScaleOut' | 'ScaleIn', name: string, spec: object): string =>
  JSON.stringify({
    ...{ apiVersion: 'kintsugi.dev/v1alpha1', kind, metadata: { name, namespace: 'kintsugi' } },
    spec: { selector: { name: JOB }, role: 'ps', timeoutSeconds: 300, ...spec },
  });
const phase = (kind: 'scaleout' | 'scalein', name: string, wanted: string, seconds = 400) =>
  kubectl('wait', `${kind}/${name}`, `--for=jsonpath={.status.phase}=${wanted}`, `--timeout=${seconds}s`);
const statusOf = async (kind: 'scaleout' | 'scalein', name: string) =>
  (await get<ScalerObject>(kind, name)).status!;
const psNames = async () =>
  (await pods(JOB, 'ps'))
    .filter(({ metadata, status }) => !metadata.deletionTimestamp && status?.phase === 'Running')
    .map(({ metadata }) => metadata.name)
    .sort();

onKubernetes(() => {
  afterAll(() => full(false).catch(() => ''));

  it('a job grows and shrinks by ScaleOut and ScaleIn, each sample exactly once', {
    timeout: 20 * MINUTES,
  }, async () => {
    await apply(movieJob(JOB, { few: true, seconds: 900, ps: { replicas: 5, maxReplicas: 7 } }));
    await waitFor(JOB, '.status.phase', 'Running');
    await waitFor(JOB, '.status.ps', '5/5');

    // Two at once: the older one first.
    await apply(scaler('ScaleOut', 'out', { toAdd: { count: 2 } }));
    await phase('scaleout', 'out', 'Scaling');
    await apply(scaler('ScaleIn', 'in', { toDelete: { count: 1 } }));
    await phase('scalein', 'in', 'Pending');
    await phase('scaleout', 'out', 'ScaleSucceeded');
    expect(await statusOf('scaleout', 'out')).toMatchObject({ from: 5, to: 7, attempt: 0 });
    await phase('scalein', 'in', 'ScaleSucceeded');
    expect(await statusOf('scalein', 'in')).toMatchObject({ from: 7, to: 6 });
    await waitFor(JOB, '.status.ps', '6/6');
    const budget = await get<KubeObject & { spec: object }>('poddisruptionbudget', `${JOB}-ps`);
    expect(budget.spec).toMatchObject({ minAvailable: 5 });

    // These, and no others.
    const before = await psNames();
    const [first, third] = [before[0]!, before[2]!];
    await apply(scaler('ScaleIn', 'named', { toDelete: { podNames: [first, third] } }));
    await phase('scalein', 'named', 'ScaleSucceeded');
    expect(await psNames()).toEqual(before.filter((name) => name !== first && name !== third));

    // Refused.
    await apply(scaler('ScaleOut', 'more', { toAdd: { count: 4 } }));
    await phase('scaleout', 'more', 'ScaleFailed');
    expect(await statusOf('scaleout', 'more')).toMatchObject({ reason: 'AboveMaximum' });
    await apply(scaler('ScaleIn', 'fewer', { toDelete: { count: 2 } }));
    await phase('scalein', 'fewer', 'ScaleFailed');
    expect(await statusOf('scalein', 'fewer')).toMatchObject({ reason: 'BelowMinimum' });

    // No machine has room for the new PS: the ScaleOut is taken back at its time, or when it is deleted.
    await full(true);
    await apply(scaler('ScaleOut', 'late', { toAdd: { count: 1 }, timeoutSeconds: 5 }));
    await phase('scaleout', 'late', 'ScaleFailed');
    const late = await statusOf('scaleout', 'late');
    expect(late).toMatchObject({ reason: 'TakenBack' });
    expect(late.message).toContain('1 of 5 PS have not joined');
    await apply(scaler('ScaleOut', 'regretted', { toAdd: { count: 1 }, timeoutSeconds: 600 }));
    await phase('scaleout', 'regretted', 'Scaling');
    await waitFor(JOB, '.status.change.to', '5');
    await kubectl('delete', 'scaleout', 'regretted', '--timeout=300s');
    await full(false);
    await waitFor(JOB, '.status.ps', '4/4');
    expect(await psNames()).toHaveLength(4);

    // While a lost PS is repaired.
    const [victim] = await psNames();
    await kubectl('delete', 'pod', victim!, '--grace-period=0', '--force');
    await apply(scaler('ScaleOut', 'repair', { toAdd: { count: 2 } }));
    await phase('scaleout', 'repair', 'ScaleSucceeded');
    const [another] = await psNames();
    await kubectl('delete', 'pod', another!, '--grace-period=0', '--force');
    await apply(scaler('ScaleIn', 'repaired', { toDelete: { count: 1 } }));
    await phase('scalein', 'repaired', 'ScaleSucceeded');
    await waitFor(JOB, '.status.ps', '5/5');
    await waitFor(JOB, '.status.redundancy', 'full');

    await apply(scaler('ScaleOut', 'workers', { role: 'worker', toAdd: { count: 1 } }));
    await phase('scaleout', 'workers', 'ScaleSucceeded');
    await waitFor(JOB, '.status.workersActive', '3');

    await hurry(JOB);
    await waitFor(JOB, '.status.phase', 'Succeeded', 600);
    const told = await listen(JOB);
    expect(await booksOf(JOB, told, { few: true })).toMatchObject({ exactlyOnce: true, problems: [] });
    const { spec, status } = await jobOf(JOB);
    expect(status).toMatchObject({ restartCount: 0, sizePs: 5 });
    expect(spec.replicaSpecs).toMatchObject({ ps: { replicas: 5 }, worker: { replicas: 3 } });
    await kubectl('delete', 'trainingjob', JOB);
    for (const kind of ['scaleout', 'scalein'])
      await kubectl('wait', '--for=delete', kind, '--all', '--timeout=60s');
  });
});
