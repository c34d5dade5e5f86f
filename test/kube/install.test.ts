/** deploy/install.yaml and the chart come and go, with jobs beside them. `helm` is on the PATH. */
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { Pod } from '../../src/fleet/operator/objects.js';
import {
  apply,
  booksOf,
  bothOperators,
  follow,
  get,
  givePace,
  hurry,
  IMAGE,
  INSTALL_YAML,
  install,
  kubectl,
  MINUTES,
  movieJob,
  NAMESPACE,
  onKubernetes,
  pods,
  present,
  ROOT,
  run,
  type Told,
  waitFor,
} from './cluster.js';

const CHART = join(ROOT, 'deploy/chart');
const hasHelm = await run('helm', ['version']).then(
  () => true,
  () => false,
);
if (present && !hasHelm) console.warn('SKIPPED: the chart is not tested, there is no helm on the PATH');

/** Kinds of objects that come and go by themselves. */
const PASSING = /^(events|events\.events\.k8s\.io|componentstatuses)$/;

/** Every object of the cluster: kind, namespace and name. */
async function everything(): Promise<string[]> {
  const kinds = (await run('kubectl', ['api-resources', '--verbs=list', '-o', 'name'])).trim().split('\n');
  const asked = kinds.filter((kind) => !PASSING.test(kind)).join(',');
  const line = '{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\\n"}{end}';
  return (await run('kubectl', ['get', asked, '-A', '-o', `jsonpath=${line}`])).trim().split('\n');
}

/**
 * Resolves with the objects that are there besides `before`: as soon as they are what is to be left, or after
 * a minute.
 */
async function left(before: readonly string[], wanted: readonly string[] = []): Promise<string[]> {
  let rest: string[] = [];
  for (let attempt = 0; attempt < 60; attempt++) {
    // A kind may go between the two questions.
    const now = await everything().catch(() => undefined);
    if (now) rest = now.filter((one) => !before.includes(one)).sort();
    if (now && String(rest) === String([...wanted].sort())) break;
    await pause(1000);
  }
  return rest;
}

/** Removes what other tests have installed. */
const uninstall = () =>
  run('kubectl', ['delete', '-f', INSTALL_YAML, '--ignore-not-found', '--timeout=240s']);

const operators = async (): Promise<string[]> => {
  const { items } = await get<{ items: Pod[] }>('pods', '-l', 'app.kubernetes.io/name=kintsugi-operator');
  return items.filter(({ metadata }) => !metadata.deletionTimestamp).map(({ metadata }) => metadata.name);
};

onKubernetes(
  () => {
    it('install.yaml brings all that a job needs, and takes everything with it', {
      timeout: 12 * MINUTES,
    }, async () => {
      const before = await everything();
      await install();
      await apply(movieJob('first', { few: true, seconds: 300 }));
      await waitFor('first', '.status.phase', 'Running');
      await waitFor('first', '.status.ps', '4/4');
      const told: Told = new Map();
      const followed = await follow('first', told);
      await apply(
        JSON.stringify({
          ...{ apiVersion: 'kintsugi.dev/v1alpha1', kind: 'ScaleOut' },
          metadata: { name: 'more', namespace: NAMESPACE },
          spec: { selector: { name: 'first' }, role: 'ps', toAdd: { count: 1 } },
        }),
      );
      const scaled = '--for=jsonpath={.status.phase}=ScaleSucceeded';
      await kubectl('wait', 'scaleout/more', scaled, '--timeout=240s');
      await hurry('first');
      await waitFor('first', '.status.phase', 'Succeeded');
      await followed();
      expect(await booksOf('first', told, { few: true })).toMatchObject({ exactlyOnce: true, problems: [] });
      // The job that has ended is still there, with its Pods.
      expect((await pods('first')).length).toBeGreaterThan(0);
      await uninstall();
      expect(await left(before)).toEqual([]);
    });

    it.skipIf(!hasHelm)(
      'the chart is installed, upgraded under a job, and leaves only what Helm leaves',
      {
        timeout: 12 * MINUTES,
      },
      async () => {
        const before = await everything();
        const at = IMAGE.lastIndexOf(':');
        const image = [`image.repository=${IMAGE.slice(0, at)}`, `image.tag=${IMAGE.slice(at + 1)}`];
        const helm = (verb: string, ...more: string[]) => {
          const set = [...image, 'image.pullPolicy=Never', ...more].flatMap((one) => ['--set', one]);
          const where = ['-n', NAMESPACE, '--wait', '--timeout', '180s'];
          return run('helm', [verb, 'kintsugi', CHART, ...where, ...set]);
        };
        await run('kubectl', ['create', 'namespace', NAMESPACE]);
        await helm('install');
        await givePace();
        await apply(movieJob('charted', { few: true, seconds: 300 }));
        await waitFor('charted', '.status.phase', 'Running');
        await waitFor('charted', '.status.ps', '4/4');
        const told: Told = new Map();
        const followed = await follow('charted', told);
        const first = await operators();
        expect(first).toHaveLength(2);

        await helm('upgrade', 'resources.requests.cpu=60m');
        await bothOperators();
        const second = await operators();
        expect(second.filter((name) => first.includes(name))).toEqual([]);
        await hurry('charted');
        // The operator that leads now writes the status.
        await waitFor('charted', '.status.phase', 'Succeeded');
        await followed();
        const books = await booksOf('charted', told, { few: true });
        expect(books).toMatchObject({ exactlyOnce: true, problems: [] });

        await kubectl('delete', 'trainingjob', 'charted');
        await kubectl('delete', 'configmap', 'paced');
        await run('helm', ['uninstall', 'kintsugi', '-n', NAMESPACE, '--wait']);
        const plurals = ['scaleins', 'scaleouts', 'trainingjobs'];
        const kept = [
          ...plurals.map((plural) => `CustomResourceDefinition//${plural}.kintsugi.dev`),
          ...[`Namespace//${NAMESPACE}`, `ConfigMap/${NAMESPACE}/kube-root-ca.crt`],
          ...[`ServiceAccount/${NAMESPACE}/default`, 'APIService//v1alpha1.kintsugi.dev'],
        ];
        expect(await left(before, kept)).toEqual(kept.sort());
        // As docs/kubernetes.md says it.
        await run('kubectl', ['delete', '-f', join(ROOT, 'deploy/crds')]);
        await run('kubectl', ['delete', 'namespace', NAMESPACE]);
        expect(await left(before)).toEqual([]);
      },
    );
  },
  { begin: uninstall, end: uninstall },
);
