/**
 * Workers of a real job that run a PyTorch program. KINTSUGI_TEST_PYTHON is a Python with PyTorch, and
 * KINTSUGI_TEST_MOUNTS are the folders that it needs, with commas between. Every node has them, and this
 * checkout.
 */
import { expect, it } from 'vitest';
import {
  apply,
  IMAGE,
  jobOf,
  kubectl,
  MINUTES,
  movieJob,
  onKubernetes,
  pods,
  ROOT,
  until,
  waitFor,
} from './cluster.js';
import { canLose, lose, mendMachines } from './machines.js';

const {
  KINTSUGI_TEST_PYTHON,
  KINTSUGI_TEST_MOUNTS = '',
  KINTSUGI_TEST_DATA = `${ROOT}/../shared/data`,
} = process.env;
const JOB = 'dlrm';
const able = canLose && KINTSUGI_TEST_PYTHON !== undefined;
if (!able) console.warn('SKIPPED: no Python program is trained, KINTSUGI_TEST_PYTHON names no Python');

/** Each folder of the machine at the same path. */
function mounted(folders: readonly string[]) {
  const named = folders.map((path, index) => ({ name: `host-${index}`, path }));
  return {
    volumeMounts: named.map(({ name, path }) => ({ name, mountPath: path, readOnly: true })),
    volumes: named.map(({ name, path }) => ({ name, hostPath: { path } })),
  };
}

/** DLRM of examples/python, with small batches: it lasts until a machine is lost. */
function worker() {
  const folders = KINTSUGI_TEST_MOUNTS.split(',').filter((path) => path !== '');
  const { volumes, volumeMounts } = mounted([...folders, ROOT, KINTSUGI_TEST_DATA]);
  const env = {
    PYTHONPATH: `${ROOT}/python/src`,
    KINTSUGI_COMMAND: 'node /app/dist/src/cli/main.js',
    ...{ OMP_NUM_THREADS: '1', PYTHONUNBUFFERED: '1', PYTHONDONTWRITEBYTECODE: '1' },
  };
  const files = ['train', 'test'].map((part) => `${KINTSUGI_TEST_DATA}/movielens-100k.${part}.tsv`);
  return {
    replicas: 2,
    command: [KINTSUGI_TEST_PYTHON, `${ROOT}/examples/python/dlrm.py`],
    args: ['--shared', '--batch', '64', '--data', files[0], '--test', files[1]],
    template: {
      spec: {
        // The Python of a test machine may be readable for its owner alone.
        securityContext: { runAsNonRoot: false, runAsUser: 0, runAsGroup: 0 },
        containers: [
          {
            ...{ name: 'kintsugi', image: IMAGE, volumeMounts },
            env: Object.entries(env).map(([name, value]) => ({ name, value })),
          },
        ],
        volumes,
      },
    },
  };
}

onKubernetes(() => {
  mendMachines();

  it.skipIf(!able)(
    'DLRM in PyTorch trains each sample exactly once, though a machine with a trainer and a PS vanishes',
    { timeout: 10 * MINUTES },
    async () => {
      await apply(movieJob(JOB, { worker: worker() }));
      await waitFor(JOB, '.status.phase', 'Running');
      await until(JOB, ({ status }) => (status?.progress?.percentage ?? 0) >= 5);
      const spared = new Set((await pods(JOB, 'scheduler')).map(({ spec }) => spec.nodeName));
      const lost = (await pods(JOB, 'worker')).find(({ spec }) => !spared.has(spec.nodeName))!;
      await lose(lost.spec.nodeName!);
      await waitFor(JOB, '.status.phase', 'Succeeded', 400);
      const { status } = await jobOf(JOB);
      expect(status?.progress).toMatchObject({ complete: true, percentage: 100 });
      expect(status?.results).toMatchObject({ samples: 90_000, lost: 0, setAside: 0 });
      expect(status?.results?.auc).toBeGreaterThan(0.77);
      const done = (await pods(JOB, 'worker')).filter((pod) => pod.status?.phase === 'Succeeded');
      const said = await Promise.all(done.map(({ metadata }) => kubectl('logs', metadata.name)));
      for (const text of said) expect(text).toContain('samples 90,000 of 90,000, 0 lost, 0 duplicated');
      expect(said.length).toBeGreaterThan(0);
    },
  );
});
