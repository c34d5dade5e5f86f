/**
 * The guide, as a new user follows it on a cluster of kind with its defaults: one machine, here of two cores,
 * of which the control plane has asked for almost one; a class of volumes like the local-path one, which
 * waits for the first Pod and binds a volume to its machine; an image that was loaded. The manifests are
 * those of the guide, with another name of the image.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, expect, it } from 'vitest';
import type { KubeNode, KubeObject, Pod } from '../../src/fleet/operator/objects.js';
import {
  apply,
  bothOperators,
  get,
  IMAGE,
  INSTALL_YAML,
  type Items,
  jobOf,
  kubectl,
  MINUTES,
  onKubernetes,
  pods,
  ROOT,
  waitFor,
  watched,
} from './cluster.js';
import { readyNodes } from './machines.js';

const CLASS = 'kind-standard';
/** The taint of a control plane where there are several machines. */
const TAINT = 'node-role.kubernetes.io/control-plane';
const FOLDER = '/tmp/kintsugi-local-path';
/** Cores of the machine, and what the control plane of kind asks for. */
const [CORES, CONTROL_PLANE] = [2, 0.95];

/** A manifest as the guide names it, with the image under test. Nothing else is changed. */
const manifest = (file: string): string =>
  readFileSync(join(ROOT, 'deploy', file), 'utf8').replaceAll('image: kintsugi:latest', `image: ${IMAGE}`);

interface Claim extends KubeObject {
  spec: { storageClassName?: string; resources: { requests: { storage: string } } };
  status?: { phase?: string };
}

/** A Pod of the test on a machine, as root. */
const helper = (name: string, node: string, command: string[], resources: object = {}): string =>
  JSON.stringify({
    ...{ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: 'default' } },
    spec: {
      ...{ nodeName: node, restartPolicy: 'Never', terminationGracePeriodSeconds: 0 },
      containers: [
        {
          ...{ name: 'helper', image: IMAGE, imagePullPolicy: 'IfNotPresent', command, resources },
          ...{ securityContext: { runAsUser: 0 }, volumeMounts: [{ name: 'tmp', mountPath: '/tmp' }] },
        },
      ],
      volumes: [{ name: 'tmp', hostPath: { path: '/tmp' } }],
    },
  });
const inDefault = (...args: string[]): Promise<string> => kubectl(...args, '-n', 'default');
const machineOf = ({ metadata }: Claim): string | undefined =>
  metadata.annotations?.['volume.kubernetes.io/selected-node'];

/** Makes the volume of a claim of which a Pod has a machine, as the provisioner of kind does. */
async function provision({ metadata, spec }: Claim, node: string): Promise<void> {
  const { uid = '', name, namespace = '' } = metadata;
  const path = `${FOLDER}/${uid}`;
  await apply(helper(`make-${uid}`, node, ['mkdir', '-m', '0777', '-p', path]));
  await inDefault('wait', `pod/make-${uid}`, '--for=jsonpath={.status.phase}=Succeeded', '--timeout=60s');
  await inDefault('delete', 'pod', `make-${uid}`);
  const hostname = { key: 'kubernetes.io/hostname', operator: 'In', values: [node] };
  await apply(
    JSON.stringify({
      ...{ apiVersion: 'v1', kind: 'PersistentVolume', metadata: { name: `pvc-${uid}` } },
      spec: {
        ...{ capacity: spec.resources.requests, accessModes: ['ReadWriteOnce'], hostPath: { path } },
        ...{ storageClassName: CLASS, persistentVolumeReclaimPolicy: 'Retain' },
        claimRef: { ...{ apiVersion: 'v1', kind: 'PersistentVolumeClaim' }, name, namespace, uid },
        nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [hostname] }] } },
      },
    }),
  );
}

/** The provisioner. */
function provisioning(): { stop(): Promise<void> } {
  let stopped = false;
  const done = new Set<string>();
  const run = async (): Promise<void> => {
    for (; !stopped; await pause(500)) {
      const { items } = await get<{ items: Claim[] }>('persistentvolumeclaims');
      for (const claim of items.filter(({ spec }) => spec.storageClassName === CLASS)) {
        const node = machineOf(claim);
        if (node === undefined || done.has(claim.metadata.uid ?? '')) continue;
        await provision(claim, node);
        done.add(claim.metadata.uid ?? '');
      }
    }
  };
  const ended = run();
  return {
    stop() {
      stopped = true;
      return ended;
    },
  };
}

async function likeKind(): Promise<void> {
  const [machine = '', ...others] = await readyNodes();
  for (const node of others) await kubectl('taint', 'node', node, `${TAINT}=:NoSchedule`);
  const { status } = await get<KubeNode & { status: { allocatable: { cpu: string } } }>('node', machine);
  const cpu = Number(status.allocatable.cpu) - CORES + CONTROL_PLANE;
  const idle = ['node', '-e', 'setInterval(() => {}, 1 << 30)'];
  await apply(helper('control-plane', machine, idle, { requests: { cpu: String(cpu) } }));
  // The newest of several default classes counts.
  const annotations = { 'storageclass.kubernetes.io/is-default-class': 'true' };
  await apply(
    JSON.stringify({
      ...{ apiVersion: 'storage.k8s.io/v1', kind: 'StorageClass', metadata: { name: CLASS, annotations } },
      ...{ provisioner: 'rancher.io/local-path', volumeBindingMode: 'WaitForFirstConsumer' },
    }),
  );
}

async function asBefore(): Promise<void> {
  await kubectl('taint', 'nodes', '--all', `${TAINT}-`).catch(() => '');
  await inDefault('delete', 'pod', 'control-plane', '--ignore-not-found', '--force');
  await kubectl('delete', 'trainingjob', '--all', '--timeout=120s');
  await kubectl('delete', 'job/data-loader', 'pvc/training-data', '--ignore-not-found', '--timeout=120s');
  await kubectl('delete', 'storageclass', CLASS, '--ignore-not-found');
  const { items } = await get<{ items: Claim[] }>('pv');
  for (const { metadata } of items.filter(({ spec }) => spec.storageClassName === CLASS))
    await kubectl('delete', 'pv', metadata.name);
}

/** The operator of deploy/install.yaml as it is, but for the name of the image. */
async function begin(): Promise<void> {
  await kubectl('delete', '-f', INSTALL_YAML, '--ignore-not-found', '--timeout=240s');
  await likeKind();
  await apply(manifest('install.yaml'));
  await bothOperators();
}

onKubernetes(
  () => {
    afterAll(asBefore, 5 * MINUTES);

    it('the guide from its first command to the end of the sample', { timeout: 15 * MINUTES }, async () => {
      const disks = provisioning();
      await apply(manifest('samples/data-loader.yaml'));
      await kubectl('wait', '--for=condition=complete', 'job/data-loader', '--timeout=5m');
      await apply(manifest('samples/small.yaml'));
      const reasons = watched('small', '.status.reason');
      await waitFor('small', '.status.ps', '4/4', 300);
      await waitFor('small', '.status.workers', '2/2', 300);
      await waitFor('small', '.status.phase', 'Running', 300);
      const all = (await pods('small')) as (Pod & { spec: { containers: { imagePullPolicy: string }[] } })[];
      expect(new Set(all.map(({ spec }) => spec.nodeName)).size).toBe(1);
      const pulls = all.map(({ spec }) => spec.containers[0]!.imagePullPolicy);
      expect(new Set(pulls)).toEqual(new Set(['IfNotPresent']));
      const claims = await get<{ items: Claim[] }>('persistentvolumeclaims');
      expect(claims.items.map(({ spec, status }) => [spec.storageClassName, status?.phase])).toEqual([
        [CLASS, 'Bound'],
        [CLASS, 'Bound'],
      ]);
      await waitFor('small', '.status.phase', 'Succeeded', 500);
      expect((await jobOf('small')).status).toMatchObject({
        restartCount: 0,
        results: { samples: 100_000, lost: 0, setAside: 0 },
      });
      await disks.stop();
      console.log({ reasons: await reasons.stop() });
      const report = await get<Items>('configmaps', '-l', 'kintsugi.dev/job=small');
      expect(report.items.map(({ metadata }) => metadata.name)).toContain('small-results');
    });
  },
  { begin },
);
