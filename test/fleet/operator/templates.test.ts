/** Templates of users, merged into the Pods that the operator makes. */
import { describe, expect, it } from 'vitest';
import { NOT_OF_TEMPLATE, TEMPLATE } from '../../../src/fleet/operator/declared/template.js';
import type { Container, Pod, PodSpec } from '../../../src/fleet/operator/objects.js';
import { mergePodSpec, templateProblem } from '../../../src/fleet/operator/reconcile/merge.js';
import { podOf, podSpecOf, withSoundTemplates } from '../../../src/fleet/operator/reconcile/pods.js';
import type { JsonSchema } from '../../../src/fleet/operator/schema.js';
import { MERGES } from './merges.js';
import { jobOf } from './support.js';

const POD_SECURITY = {
  ...{ runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000 },
  seccompProfile: { type: 'RuntimeDefault' },
};
const SECURITY = {
  ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
  capabilities: { drop: ['ALL'] },
};
const specWith = (spec: object): PodSpec =>
  podSpecOf(jobOf({ ps: { template: { spec: spec as PodSpec } } }), 'ps');
const mainWith = (fields: object): Container =>
  specWith({ containers: [{ name: 'kintsugi', ...fields }] }).containers![0]!;

describe('a strategic merge', () => {
  it.each(MERGES)('$what', ({ base, given, merged }) => {
    expect(mergePodSpec(base, given)).toEqual(merged);
  });

  it('leaves both as they are', () => {
    for (const { base, given } of MERGES) {
      const before = structuredClone({ base, given });
      mergePodSpec(base, given);
      expect({ base, given }).toEqual(before);
    }
  });

  it('takes null in place of items for no items, which is what YAML has when all lines are gone', () => {
    const env = [{ name: 'A', value: '1' }];
    const base = { containers: [{ name: 'kintsugi', env, args: ['a'] }], volumes: [{ name: 'tmp' }] };
    const gone = { containers: [{ name: 'kintsugi', env: null, ports: null }], volumes: null };
    expect(mergePodSpec(base, gone as never)).toEqual(base);
    expect(mergePodSpec(base, { containers: null } as never)).toEqual(base);
    expect(mergePodSpec({}, { ...gone, initContainers: null } as never)).toEqual({
      containers: [{ name: 'kintsugi' }],
    });
    expect(mainWith({ env: null, volumeMounts: null })).toEqual(mainWith({}));
  });

  it.each([
    [{ $patch: 'replace' }, 'template.spec.$patch'],
    [{ containers: [{ name: 'side', $patch: 'delete' }] }, 'template.spec.containers[0].$patch'],
    [{ securityContext: { $retainKeys: ['fsGroup'] } }, 'template.spec.securityContext.$retainKeys'],
    [{ '$setElementOrder/volumes': [] }, 'template.spec.$setElementOrder/volumes'],
    [{ tolerations: [{ $patch: 'replace' }] }, 'template.spec.tolerations[0].$patch'],
    [{ '$deleteFromPrimitiveList/x': [] }, 'template.spec.$deleteFromPrimitiveList/x'],
  ])('refuses directives of a patch: %j', (given, path) => {
    const problem = templateProblem({ spec: given as PodSpec }, 'template');
    expect(problem).toBe(
      `"${path}" is a directive of a patch, and a template is none: name the fields that are to differ`,
    );
  });
});

describe('a template', () => {
  it('of which one field concerns security keeps all others', () => {
    expect(specWith({ securityContext: { fsGroup: 2000 } }).securityContext).toEqual({
      ...POD_SECURITY,
      fsGroup: 2000,
    });
    expect(mainWith({ securityContext: { capabilities: { add: ['NET_BIND_SERVICE'] } } })).toMatchObject({
      securityContext: { ...SECURITY, capabilities: { drop: ['ALL'], add: ['NET_BIND_SERVICE'] } },
    });
  });

  it('weakens what it names, and nothing else', () => {
    const weak = specWith({ securityContext: { runAsNonRoot: false, runAsUser: 0 } });
    expect(weak.securityContext).toEqual({ ...POD_SECURITY, runAsNonRoot: false, runAsUser: 0 });
    expect(weak.containers![0]!.securityContext).toEqual(SECURITY);
    const writable = mainWith({ securityContext: { readOnlyRootFilesystem: false } });
    expect(writable.securityContext).toEqual({ ...SECURITY, readOnlyRootFilesystem: false });
  });

  it('changes one field of the probe, a mount, a variable or a volume', () => {
    expect(mainWith({ readinessProbe: { timeoutSeconds: 30 } }).readinessProbe).toEqual({
      ...{ httpGet: { path: '/readyz', port: 7100 }, periodSeconds: 2, timeoutSeconds: 30 },
    });
    const mounts = mainWith({ volumeMounts: [{ name: 'big', mountPath: '/tmp' }] }).volumeMounts;
    expect(mounts).toEqual([{ name: 'big', mountPath: '/tmp' }]);
    const { env } = mainWith({ env: [{ name: 'NODE_NAME', value: 'fixed' }] });
    expect(env!.filter(({ name }) => name === 'NODE_NAME')).toEqual([{ name: 'NODE_NAME', value: 'fixed' }]);
    const { volumes } = specWith({ volumes: [{ name: 'tmp', emptyDir: { sizeLimit: '1Gi' } }] });
    expect(volumes).toEqual([{ name: 'tmp', emptyDir: { sizeLimit: '1Gi' } }]);
  });

  it('adds its tolerations, and takes the place of those with the same key and effect', () => {
    const ours = (what: string) => ({
      ...{ key: `node.kubernetes.io/${what}`, operator: 'Exists', effect: 'NoExecute' },
      tolerationSeconds: 10,
    });
    const key = 'node.kubernetes.io/not-ready';
    const toleranceOf = (given: object[]) => specWith({ tolerations: given }).tolerations;
    for (const replaces of [
      { key, operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 300 },
      // No effect is every effect.
      { key, operator: 'Exists' },
    ])
      expect(toleranceOf([replaces])).toEqual([replaces, ours('unreachable')]);
    for (const other of [
      { key, operator: 'Exists', effect: 'NoSchedule' },
      { key: 'spot', operator: 'Exists', effect: 'NoExecute' },
      { operator: 'Exists' },
    ])
      expect(toleranceOf([other])).toEqual([other, ours('not-ready'), ours('unreachable')]);
  });

  it('of the scheduler has no volume of the name of its state', () => {
    const volumes = [{ name: 'state', emptyDir: {} } as { name: string }];
    const problemIn = (store: object, role: 'scheduler' | 'ps' = 'scheduler') => {
      const job = jobOf({ scheduler: { store: { size: '1Gi', deletionPolicy: 'Delete', ...store } } });
      job.spec.replicaSpecs[role] = { template: { spec: { volumes } } };
      return withSoundTemplates(job).problems.get(role);
    };
    const problem =
      '"replicaSpecs.scheduler.template.spec.volumes" has "state", which is the volume of the operator for ' +
      'the state of the job: another one needs another name';
    expect(problemIn({})).toBe(problem);
    expect(problemIn({ claimName: 'mine' })).toBe(problem);
    expect(problemIn({ etcd: { url: 'etcd://e:2379/x', schedulers: 2 } })).toBeUndefined();
    expect(problemIn({}, 'ps')).toBeUndefined();
  });

  it.each([
    ['command', ['node', 'train.mjs']],
    ['args', ['ps', '--memory', '1Gi']],
    ['restartPolicy', 'Always'],
    ['terminationMessagePath', '/tmp/words'],
    ['terminationMessagePolicy', 'File'],
  ])('has no %s for its container "kintsugi", and any for others', (field, value) => {
    const problemsIn = (name: string, given: unknown) => {
      const template = { spec: { containers: [{ name, [field]: given }] } };
      return withSoundTemplates(jobOf({ worker: { template } })).problems;
    };
    expect([...problemsIn('kintsugi', value).keys()]).toEqual(['worker']);
    expect(problemsIn('kintsugi', value).get('worker')).toBe(
      `"replicaSpecs.worker.template.spec.containers" has "${field}": ${NOT_OF_TEMPLATE}`,
    );
    expect(problemsIn('side', value).size).toBe(0);
    expect(problemsIn('kintsugi', null).size).toBe(0);
  });

  it('is refused in the same words by the API server', () => {
    const rulesIn = (schema: JsonSchema): object[] => [
      ...(schema['x-kubernetes-validations'] ?? []),
      ...Object.values(schema.properties ?? {}).flatMap(rulesIn),
      ...(schema.items ? rulesIn(schema.items) : []),
    ];
    const refusing = {
      message: NOT_OF_TEMPLATE,
      rule: expect.stringMatching(/command.*terminationMessagePolicy/s),
    };
    expect(rulesIn(TEMPLATE.schema)).toContainEqual(refusing);
  });

  it('cannot take the gate, the name or the restart policy from a Pod', () => {
    const job = jobOf({
      ps: { template: { spec: { restartPolicy: 'Never', readinessGates: [{ conditionType: 'a/b' }] } } },
    });
    const { spec } = podOf(job, 'ps', 0) as unknown as Pod;
    expect(spec.restartPolicy).toBe('OnFailure');
    expect(spec.readinessGates).toEqual([
      { conditionType: 'a/b' },
      { conditionType: 'kintsugi.dev/redundant' },
    ]);
  });
});
