/**
 * A real operator beside jobs that run and do not change: its memory, and what it asks of the API server, for
 * docs/kubernetes.md: `KINTSUGI_JOBS=100 KINTSUGI_IDLE_SECONDS=180`. The API server is made up. All jobs have
 * one real scheduler with its PS, at the port that operators dial, so it is left out without these.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import type { KubeObject, Pod } from '../../../src/fleet/operator/objects.js';
import { JOB_LABEL, ROLE_LABEL, SCHEDULER_PORT } from '../../../src/fleet/operator/reconcile/names.js';
import type { TrainingJob } from '../../../src/fleet/operator/types.js';
import { type Running, record, start } from '../../cli/support.js';
import { makeCertificates } from '../../net/transport/certificates.js';
import { serve } from './https.js';
import { MemoryServer } from './server.js';
import { jobOf, lived, nodeOf } from './support.js';

const JOBS = Number(process.env.KINTSUGI_JOBS ?? 100);
const SECONDS = Number(process.env.KINTSUGI_IDLE_SECONDS ?? 0);
const ADDRESS = '127.77.0.1';
const TOKENS = { KINTSUGI_TOKEN: 'clients', KINTSUGI_NODE_TOKEN: 'nodes' };

function begin(args: string[], env: NodeJS.ProcessEnv): Running {
  const running = start([...args, '--log-format', 'json'], env);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

/** MiB that a process has in memory. */
function memoryOf({ process: { pid } }: Running): number {
  const [, kib] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))!;
  return Number(kib) / 1024;
}

it.skipIf(SECONDS === 0)(
  `${JOBS} jobs that do not change`,
  {
    timeout: (SECONDS + 600) * 1000,
  },
  async () => {
    const scheduler = begin(
      ['scheduler', '--listen', `${ADDRESS}:${SCHEDULER_PORT}`, '--ps', '4', '--code', '2+1'],
      TOKENS,
    );
    await record(scheduler, 'scheduler.ready');
    const reach = ['--scheduler', `${ADDRESS}:${SCHEDULER_PORT}`, '--listen', '127.0.0.1:0'];
    // Pods of different namespaces have the same names.
    for (let index = 0; index < 4; index++)
      begin(['ps', ...reach, '--name', `idle-ps-${index}`, '--host-label', `h${index}`], TOKENS);

    const certificates = makeCertificates();
    onTestFinished(() => certificates.remove());
    const server = new MemoryServer(Math.random);
    const { config, close } = await serve(server, certificates);
    onTestFinished(close);
    server.put('Node', nodeOf('n1'));
    let settled = () => {};
    const running = new Set<string>();
    const all = new Promise<void>((resolve) => {
      settled = resolve;
    });
    server.onChange = (kind, object, gone) => {
      const { name, namespace = '', labels } = object.metadata;
      if (gone) return;
      if (kind === 'Pod' && !(object as Pod).status?.phase)
        setImmediate(() => {
          const { spec, status } = lived(object);
          server.put('Pod', { ...object, spec, status: { ...status, podIP: ADDRESS } } as Pod);
        });
      if (kind === 'StatefulSet' && !server.objects.has(`Pod/${namespace}/${name}-0`)) {
        const of = { [JOB_LABEL]: labels![JOB_LABEL]!, [ROLE_LABEL]: 'scheduler' };
        const owner = { apiVersion: 'apps/v1', kind, name, uid: 'set' };
        const metadata = { name: `${name}-0`, namespace, labels: of, ownerReferences: [owner] };
        server.put('Pod', { apiVersion: 'v1', kind: 'Pod', metadata, spec: {} } as unknown as KubeObject);
      }
      if (kind !== 'TrainingJob') return;
      const { status } = object as TrainingJob;
      if (status?.phase === 'Running' && status.ps === '4/4' && status.redundancy === 'full')
        running.add(namespace);
      if (running.size === JOBS) settled();
    };

    const directory = mkdtempSync(join(tmpdir(), 'kintsugi-kube-'));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const KUBECONFIG = join(directory, 'config');
    writeFileSync(KUBECONFIG, JSON.stringify(config));
    const operator = begin(['operator', '--all-namespaces'], { KUBECONFIG });
    await record(operator, 'operator.leads');
    await pause(10_000);
    const without = memoryOf(operator);
    const data = Object.fromEntries(
      ['token', 'nodeToken', 'metricsToken'].map((key) => [key, Buffer.from('clients').toString('base64')]),
    );
    for (let index = 0; index < JOBS; index++) {
      const namespace = `n${index}`;
      const metadata = { name: 'idle-tokens', namespace };
      server.put('Secret', { apiVersion: 'v1', kind: 'Secret', metadata, data } as KubeObject);
      const job = jobOf({ worker: { replicas: 1 } }, 'idle');
      server.put('TrainingJob', { ...job, metadata: { ...job.metadata, namespace, uid: `uid-${index}` } });
    }
    await all;
    // The newest writes are read back meanwhile.
    await pause(20_000);
    const settledAt = memoryOf(operator);
    server.requests.clear();
    await pause(SECONDS * 1000);
    const memory = memoryOf(operator);
    const asked = Object.fromEntries(server.requests);
    console.log(
      `${JOBS} jobs: ${memory.toFixed(0)} MiB (${settledAt.toFixed(0)} before), ` +
        `${without.toFixed(0)} without any; in ${SECONDS} s: ${JSON.stringify(asked)}`,
    );
    // The lease is read and written, and nothing is said of the jobs.
    expect(Object.keys(asked).filter((verb) => !['get', 'update', 'list', 'watch'].includes(verb))).toEqual(
      [],
    );
    expect(server.of<TrainingJob>('TrainingJob').map(({ status }) => status?.phase)).toEqual(
      Array.from({ length: JOBS }, () => 'Running'),
    );
  },
);
