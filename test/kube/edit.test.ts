/** PS of a real job come and go. */
import { expect, it } from 'vitest';
import type { KubeObject } from '../../src/fleet/operator/objects.js';
import {
  apply,
  booksOf,
  get,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  onKubernetes,
  patch,
  pods,
  waitFor,
} from './cluster.js';

onKubernetes(() => {
  it('PS come and go by an edit while it trains, beside an operator that is killed', {
    timeout: 10 * MINUTES,
  }, async () => {
    await apply(movieJob('edited', { epochs: 2, runPolicy: { cleanPodPolicy: 'None' } }));
    await waitFor('edited', '.status.phase', 'Running');
    await waitFor('edited', '.status.ps', '4/4');
    const replicas = (count: number) => patch('edited', { replicaSpecs: { ps: { replicas: count } } });
    await replicas(5);
    await waitFor('edited', '.status.ps', '5/5');
    // All of them: nobody leads until one is back.
    await kubectl(
      'delete',
      'pods',
      '-l',
      'app.kubernetes.io/name=kintsugi-operator',
      '--grace-period=0',
      '--force',
    );
    await replicas(4);
    await waitFor('edited', '.status.ps', '4/4');
    await waitFor('edited', '.status.redundancy', 'full');
    await waitFor('edited', '.status.phase', 'Succeeded');
    const told = await listen('edited');
    expect(await booksOf('edited', told, { epochs: 2 })).toMatchObject({ exactlyOnce: true, problems: [] });
    const { status } = await jobOf('edited');
    // The newest was emptied, ended by itself, and nothing replaced it.
    expect(status).toMatchObject({ restartCount: 0, nextIndex: { ps: 5, worker: 2 } });
    const left = (await pods('edited', 'ps')).map(({ metadata }) => metadata.name).sort();
    expect(left).toEqual(['edited-ps-0', 'edited-ps-1', 'edited-ps-2', 'edited-ps-3']);
    const budget = await get<KubeObject & { spec: object }>('poddisruptionbudget', 'edited-ps');
    expect(budget.spec).toMatchObject({ minAvailable: 3 });
    await patch('edited', { runPolicy: { cleanPodPolicy: 'All' } });
    for (const { metadata } of await pods('edited'))
      await kubectl('wait', '--for=delete', `pod/${metadata.name}`, '--timeout=120s');
  });
});
