/** Replicas of a real job have one writer: a tool that applies them on the server, or the operator. */
import { load } from 'js-yaml';
import { expect, it } from 'vitest';
import type { ScalerObject, TrainingJob } from '../../src/fleet/operator/types.js';
import {
  apply,
  get,
  jobOf,
  kubectl,
  MINUTES,
  movieJob,
  NAMESPACE,
  onKubernetes,
  run,
  waitFor,
} from './cluster.js';

const JOB = 'kept';

/** Applies as a tool does that keeps the cluster as its repository says. */
const keep = (job: object): Promise<string> =>
  run('kubectl', ['apply', '--server-side', '--field-manager=git', '-f', '-'], JSON.stringify(job));

async function scaled(name: string, phase: string): Promise<NonNullable<ScalerObject['status']>> {
  const metadata = { name, namespace: NAMESPACE };
  const spec = { selector: { name: JOB }, role: 'ps', timeoutSeconds: 300, toAdd: { count: 1 } };
  await apply(JSON.stringify({ apiVersion: 'kintsugi.dev/v1alpha1', kind: 'ScaleOut', metadata, spec }));
  await kubectl('wait', `scaleout/${name}`, `--for=jsonpath={.status.phase}=${phase}`, '--timeout=300s');
  return (await get<ScalerObject>('scaleout', name)).status!;
}

onKubernetes(() => {
  it('a tool that leaves them out keeps those of a ScaleOut, and one that has them forbids it', {
    timeout: 10 * MINUTES,
  }, async () => {
    const job = load(movieJob(JOB, { few: true, seconds: 600 })) as TrainingJob;
    await keep(job);
    await waitFor(JOB, '.status.phase', 'Running');
    await waitFor(JOB, '.status.ps', '4/4');
    await scaled('more', 'ScaleSucceeded');
    await keep(job);
    expect((await jobOf(JOB)).spec.replicaSpecs.ps.replicas).toBe(5);
    const { managedFields } = JSON.parse(
      await kubectl('get', 'trainingjob', JOB, '-o', 'json', '--show-managed-fields'),
    ).metadata as TrainingJob['metadata'];
    const owners = managedFields!.map(({ manager, operation }) => `${operation} ${manager}`);
    expect(owners).toEqual(
      expect.arrayContaining(['Apply git', 'Apply kintsugi-scaling-ps', 'Update kintsugi-operator']),
    );
    job.spec.replicaSpecs.ps = { ...job.spec.replicaSpecs.ps, replicas: 5 };
    await keep(job);
    const refused = await scaled('much-more', 'ScaleFailed');
    expect(refused).toMatchObject({ reason: 'DeclaredElsewhere' });
    expect(refused.message).toContain('"git" applies replicas of ps');
    expect((await jobOf(JOB)).spec.replicaSpecs.ps.replicas).toBe(5);
    // The tool leaves them out of a job that runs. Its only owner would have them go back to the default.
    const { replicas: _, ...ps } = job.spec.replicaSpecs.ps;
    await keep({ ...job, spec: { ...job.spec, replicaSpecs: { ...job.spec.replicaSpecs, ps } } });
    expect((await jobOf(JOB)).spec.replicaSpecs.ps.replicas).toBe(5);
    await scaled('more-again', 'ScaleSucceeded');
  });
});
