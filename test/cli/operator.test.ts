/** `kintsugi operator` as a process, beside an API server that is made up. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { KubeObject } from '../../src/fleet/operator/objects.js';
import type { TrainingJob } from '../../src/fleet/operator/types.js';
import { serve } from '../fleet/operator/https.js';
import { MemoryServer } from '../fleet/operator/server.js';
import { jobOf, nodeOf } from '../fleet/operator/support.js';
import { hasOpenssl, makeCertificates } from '../net/transport/certificates.js';
import { kintsugi, record, start } from './support.js';

function kubeconfig(value: object): NodeJS.ProcessEnv {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-kube-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, 'config');
  writeFileSync(file, JSON.stringify(value));
  return { KUBECONFIG: file };
}

test('a kubeconfig that names no cluster is refused', async () => {
  const empty = kubeconfig({ apiVersion: 'v1', kind: 'Config', clusters: [], users: [], contexts: [] });
  const { code, said } = await kintsugi(['operator'], empty);
  expect([code, said]).toEqual([2, ['kintsugi: BAD_ARGUMENT: the kubeconfig names no cluster']]);
  const { code: also, said: other } = await kintsugi(['operator'], { KUBECONFIG: '/nowhere/config' });
  expect(also).toBe(2);
  expect(other[0]).toMatch(/^kintsugi: BAD_ARGUMENT: the kubeconfig cannot be read: /);
});

/** An API server, and a function that starts an operator beside it. */
async function cluster() {
  const certificates = makeCertificates();
  onTestFinished(() => certificates.remove());
  const server = new MemoryServer(Math.random);
  const { config, close } = await serve(server, certificates);
  onTestFinished(close);
  server.put('Node', nodeOf('n1'));
  const env = kubeconfig(config);
  const begin = () => {
    const running = start(['operator', '--log-format', 'json'], env);
    onTestFinished(() => void running.process.kill('SIGKILL'));
    return running;
  };
  return { server, begin };
}

test.skipIf(!hasOpenssl)(
  'one of two leads and makes what a job needs; at its end the other one leads',
  async () => {
    const { server, begin } = await cluster();
    const first = begin();
    await record(first, 'operator.leads');
    const second = begin();
    await record(second, 'operator.standby');
    const waiting = new Set<() => void>();
    server.onChange = () => {
      for (const check of [...waiting]) check();
    };
    const until = (so: () => boolean): Promise<void> =>
      new Promise((resolve) => {
        const check = (): void => {
          if (so()) resolve();
        };
        waiting.add(check);
        check();
      });
    server.put('TrainingJob', jobOf());
    const statusOf = (name: string) =>
      server.of<TrainingJob>('TrainingJob').find(({ metadata }) => metadata.name === name)?.status;
    const madeFor = (name: string) =>
      server.of<KubeObject>('Pod').filter(({ metadata }) => metadata.name.startsWith(`${name}-`)).length;
    await until(() => madeFor('movies') === 6 && statusOf('movies')?.currentPs?.length === 4);
    expect(statusOf('movies')).toMatchObject({ phase: 'Pending', ps: '0/4', workers: '0/2' });
    first.process.kill('SIGTERM');
    expect(await first.ended).toMatchObject({ code: 0, said: [] });
    await record(second, 'operator.leads');
    server.put('TrainingJob', jobOf({}, 'songs'));
    await until(() => madeFor('songs') === 6);
    // The second operator leaves alone what the first one has made.
    expect(madeFor('movies')).toBe(6);
    second.process.kill('SIGTERM');
    expect(await second.ended).toMatchObject({ code: 0, said: [] });
  },
);

test.skipIf(!hasOpenssl)('one that another has deposed stands by, and leads again after it', async () => {
  const { server, begin } = await cluster();
  const operator = begin();
  await record(operator, 'operator.leads');
  const [lease] = server.of<KubeObject & { spec: object }>('Lease');
  const held = (holderIdentity: string) =>
    server.put('Lease', { ...lease!, spec: { ...lease!.spec, holderIdentity } } as KubeObject);
  held('another');
  await record(operator, 'operator.deposed');
  server.put('TrainingJob', jobOf());
  held('');
  const begun = new Promise<void>((resolve) => {
    server.onChange = (kind) => kind === 'Pod' && resolve();
  });
  await begun;
  operator.process.kill('SIGTERM');
  expect(await operator.ended).toMatchObject({ code: 0, said: [] });
});
