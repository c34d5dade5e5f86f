/**
 * Workers of a real job that run a PyTorch program, in one of two ways. KINTSUGI_TEST_PYTHON_IMAGE is the
 * image of deploy/python.Dockerfile, which the nodes have. Or KINTSUGI_TEST_PYTHON is a Python with PyTorch,
 * and KINTSUGI_TEST_MOUNTS are the folders that it needs, with commas between: every node has them, and this
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
  KINTSUGI_TEST_PYTHON_IMAGE,
  KINTSUGI_TEST_MOUNTS = '',
  KINTSUGI_TEST_DATA = `${ROOT}/../shared/data`,
} = process.env;
const JOB = 'dlrm';
const able = canLose && (KINTSUGI_TEST_PYTHON_IMAGE ?? KINTSUGI_TEST_PYTHON) !== undefined;
if (!able)
  console.warn(
    'SKIPPED: no Python program is trained, KINTSUGI_TEST_PYTHON_IMAGE and KINTSUGI_TEST_PYTHON name none',
  );

/** Each folder of the machine at the same path. */
function mounted(folders: readonly string[]) {
  const named = folders.map((path, index) => ({ name: `host-${index}`, path }));
  return {
    volumeMounts: named.map(({ name, path }) => ({ name, mountPath: path, readOnly: true })),
    volumes: named.map(({ name, path }) => ({ name, hostPath: { path } })),
  };
}

const FILES = ['train', 'test'].map((part) => `${KINTSUGI_TEST_DATA}/movielens-100k.${part}.tsv`);
/** Small batches: it lasts until a machine is lost. */
const ARGS = ['--shared', '--batch', '64', '--data', FILES[0], '--test', FILES[1]];

/** DLRM of the image, as in deploy/samples/python-dlrm.yaml. */
function workerOfImage(image: string) {
  const { volumes, volumeMounts } = mounted([KINTSUGI_TEST_DATA]);
  const env = [{ name: 'OMP_NUM_THREADS', value: '1' }];
  const container = { ...{ name: 'kintsugi', image, imagePullPolicy: 'Never' }, env, volumeMounts };
  return {
    ...{ replicas: 2, command: ['python', '/app/dlrm.py'], args: ARGS },
    template: { spec: { containers: [container], volumes } },
  };
}

/** DLRM of examples/python, with a Python of the machines. */
function worker() {
  const folders = KINTSUGI_TEST_MOUNTS.split(',').filter((path) => path !== '');
  const { volumes, volumeMounts } = mounted([...folders, ROOT, KINTSUGI_TEST_DATA]);
  const env = {
    PYTHONPATH: `${ROOT}/python/src`,
    KINTSUGI_COMMAND: 'node /app/dist/src/cli/main.js',
    ...{ OMP_NUM_THREADS: '1', PYTHONUNBUFFERED: '1', PYTHONDONTWRITEBYTECODE: '1' },
  };
  return {
    replicas: 2,
    command: [KINTSUGI_TEST_PYTHON, `${ROOT}/examples/python/dlrm.py`],
    args: ARGS,
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
      const image = KINTSUGI_TEST_PYTHON_IMAGE;
      await apply(movieJob(JOB, { worker: image ? workerOfImage(image) : worker() }));
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
