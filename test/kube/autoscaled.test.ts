/** deploy/samples/autoscaled.yaml, with the data and the pace of the tests. */
import { readFileSync } from 'node:fs';
import { load } from 'js-yaml';
import { expect, it } from 'vitest';
import type { ScalerObject, TrainingJob } from '../../src/fleet/operator/types.js';
import {
  apply,
  booksOf,
  follow,
  get,
  hurry,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  onKubernetes,
  pods,
  type Told,
  until,
  waitFor,
} from './cluster.js';

const SAMPLE = new URL('../../deploy/samples/autoscaled.yaml', import.meta.url);
const JOB = 'autoscaled';

onKubernetes(() => {
  it('the operator adds workers by ScaleOut while each brings its share, and says why', {
    timeout: 12 * MINUTES,
  }, async () => {
    const sample = load(readFileSync(SAMPLE, 'utf8')) as TrainingJob;
    const mine = load(movieJob(JOB, { few: true, seconds: 600 })) as TrainingJob;
    const { scheduler, worker } = mine.spec.replicaSpecs;
    const { ps, worker: its } = sample.spec.replicaSpecs;
    const [container] = worker.template!.spec!.containers!;
    const [given] = its.template!.spec!.containers!;
    const resources = { ...given!.resources, requests: { ...given!.resources!.requests, cpu: '100m' } };
    const spec = {
      ...{ ...mine.spec, code: sample.spec.code, resourceLimits: sample.spec.resourceLimits },
      // The sample's times are longer, for a job that lasts for hours.
      autoscale: { ...sample.spec.autoscale, lookSeconds: 1, settleSeconds: 10, windowSeconds: 20 },
      replicaSpecs: {
        scheduler,
        ps,
        worker: {
          ...{ ...worker, replicas: 1, minReplicas: its.minReplicas, maxReplicas: 3 },
          template: { spec: { ...worker.template!.spec, containers: [{ ...container!, resources }] } },
        },
      },
    };
    await apply(JSON.stringify({ ...sample, spec }));
    await waitFor(JOB, '.status.phase', 'Running', 400);
    // The sample names no number of PS: the job begins with the least.
    const least = ps.minReplicas!;
    await waitFor(JOB, '.status.ps', `${least}/${least}`);
    const told: Told = new Map();
    // Each trains as fast as its source gives: more of them are worth it.
    const { spec: grown } = await until(JOB, (job) => job.spec.replicaSpecs.worker.replicas > 1);
    expect(grown.replicaSpecs.ps.replicas ?? least).toBe(least);
    const made = await get<{ items: ScalerObject[] }>('scaleouts', '-l', 'kintsugi.dev/autoscale');
    const [first] = made.items;
    expect(first).toMatchObject({ spec: { selector: { name: JOB }, role: 'worker' } });
    expect(first!.metadata.annotations?.['kintsugi.dev/decision']).toContain('a try');
    expect(first!.metadata.ownerReferences).toMatchObject([{ kind: 'TrainingJob', name: JOB }]);

    const followed = await follow(JOB, told);
    await hurry(JOB);
    await waitFor(JOB, '.status.phase', 'Succeeded');
    await followed();
    await listen(JOB, told);
    const books = await booksOf(JOB, told, { few: true });
    expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    // Objects that the autoscaler has made go with the job.
    await kubectl('delete', 'trainingjob', JOB);
    await kubectl('wait', '--for=delete', `scaleout/${first!.metadata.name}`, '--timeout=120s');
    expect(
      await pods(JOB, 'worker').then((all) => all.filter((one) => !one.metadata.deletionTimestamp)),
    ).toEqual([]);
  });
});
