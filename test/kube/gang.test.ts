/**
 * A gang of Kubernetes itself: PodGroup of scheduling.k8s.io/v1alpha2, where the cluster serves it and its
 * scheduler has the features GenericWorkload and GangScheduling.
 */
import { expect, it } from 'vitest';
import {
  apply,
  get,
  hurry,
  kubectl,
  MINUTES,
  movieJob,
  onKubernetes,
  pods,
  refused,
  until,
  waitFor,
} from './cluster.js';

const JOB = 'gang';
const policy = (schedulingPolicy: object) => ({ schedulingPolicy });

onKubernetes(() => {
  it('minAvailable without a gang, and with KAI, is refused with a sentence', async () => {
    const alone = await refused(movieJob(JOB, { runPolicy: policy({ minAvailable: 3 }) }));
    expect(alone).toContain('minAvailable needs gang: without a gang scheduler nobody holds Pods back');
    const kai = await refused(movieJob(JOB, { runPolicy: policy({ minAvailable: 3, gang: 'kai' }) }));
    expect(kai).toContain('KAI groups the Pods of a TrainingJob itself, and takes no minAvailable');
  });

  it('a gang whose scheduler is not installed is stuck, and says so', { timeout: 5 * MINUTES }, async () => {
    await apply(movieJob('volcano', { few: true, runPolicy: policy({ gang: 'volcano' }) }));
    const { status } = await until('volcano', (one) => one.status?.reason === 'Gang');
    const stuck = status!.conditions!.find(({ type }) => type === 'Stuck');
    expect(stuck!.message).toContain('Volcano is not installed');
    expect(await pods('volcano')).toEqual([]);
    await kubectl('delete', 'trainingjob', 'volcano');
  });

  it('none of its Pods is placed before there is room for so many', { timeout: 15 * MINUTES }, async () => {
    const answer = await kubectl('get', '--raw', '/apis/scheduling.k8s.io/v1alpha2').catch(() => '');
    if (!answer.includes('podgroups')) {
      console.warn('SKIPPED: the cluster has no PodGroup of scheduling.k8s.io/v1alpha2');
      return;
    }
    const placed = async (): Promise<number> =>
      (await pods(JOB)).filter(({ spec }) => spec.nodeName !== undefined).length;
    // No machine is for workers yet.
    const ps = { template: {} };
    const gang = policy({ gang: 'kubernetes', minAvailable: 7 });
    await apply(movieJob(JOB, { few: true, seconds: 30, runPolicy: gang, pools: true, ps }));
    await until(JOB, ({ status }) => status?.currentPs?.length === 4 && status.currentWorkers?.length === 2);
    await until(JOB, ({ status }) => status?.reason === 'Unschedulable');
    expect(await placed()).toBe(0);
    type Group = { spec: { schedulingPolicy: { gang: { minCount: number } } } };
    expect((await get<Group>('podgroups.scheduling.k8s.io', JOB)).spec.schedulingPolicy.gang.minCount).toBe(
      7,
    );
    await kubectl('label', 'nodes', '--all', 'pool=worker', '--overwrite');
    await waitFor(JOB, '.status.phase', 'Running', 400);
    expect(await placed()).toBe(7);
    await hurry(JOB);
    await waitFor(JOB, '.status.phase', 'Succeeded', 400);
    await kubectl('label', 'nodes', '--all', 'pool-');
  });
});
