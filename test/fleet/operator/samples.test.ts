/** deploy/samples: each is what the custom resources take, and makes the Pods that it is to make. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadAll } from 'js-yaml';
import { expect, it } from 'vitest';
import { crds } from '../../../src/fleet/operator/crds.js';
import { podOf } from '../../../src/fleet/operator/reconcile/pods.js';
import type { JsonSchema } from '../../../src/fleet/operator/schema.js';
import type { TrainingJob } from '../../../src/fleet/operator/types.js';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../../..');
const SAMPLES = join(ROOT, 'deploy/samples');
/** This sample fills the claim of the others, and is of Kubernetes' own kinds. */
const LOADER = 'data-loader.yaml';
const files = readdirSync(SAMPLES).filter((name) => name.endsWith('.yaml') && name !== LOADER);
const loaded = (name: string): TrainingJob[] =>
  loadAll(readFileSync(join(SAMPLES, name), 'utf8')) as TrainingJob[];

const TYPES: Record<string, (value: unknown) => boolean> = {
  object: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  array: Array.isArray,
  string: (value) => typeof value === 'string',
  integer: Number.isInteger,
  boolean: (value) => typeof value === 'boolean',
};

/** Faults that the API server would find in a value, without rules in CEL. */
function problems(schema: JsonSchema, value: unknown, path: string): string[] {
  const { type = 'object', properties, additionalProperties, items, required = [] } = schema;
  if (!TYPES[type]?.(value)) return [`${path} is no ${type}`];
  const { minimum = Number.NEGATIVE_INFINITY, maximum = Number.POSITIVE_INFINITY } = schema;
  if (type === 'integer' && ((value as number) < minimum || (value as number) > maximum))
    return [`${path} is out of range`];
  if (schema.enum && !schema.enum.includes(value as string)) return [`${path} is none of its values`];
  if (schema.pattern && !new RegExp(schema.pattern).test(value as string))
    return [`${path} has another form`];
  if (type === 'array')
    return (value as unknown[]).flatMap((one, at) => problems(items!, one, `${path}[${at}]`));
  if (type !== 'object' || schema['x-kubernetes-preserve-unknown-fields']) return [];
  const given = value as Record<string, unknown>;
  const missing = required.filter((name) => !(name in given)).map((name) => `${path}.${name} is missing`);
  const inside = Object.entries(given).flatMap(([name, one]) => {
    const field = properties?.[name] ?? additionalProperties;
    return field ? problems(field, one, `${path}.${name}`) : [`${path}.${name} is unknown`];
  });
  return [...missing, ...inside];
}

/** The object as the API server stores it. */
function filled(schema: JsonSchema, value: unknown): unknown {
  if (schema.items && Array.isArray(value)) return value.map((one) => filled(schema.items!, one));
  if (!schema.properties || typeof value !== 'object' || value === null) return value;
  const given = { ...(value as Record<string, unknown>) };
  for (const [name, field] of Object.entries(schema.properties)) {
    given[name] ??= structuredClone(field.default);
    if (given[name] === undefined) delete given[name];
    else given[name] = filled(field, given[name]);
  }
  return given;
}

const specOf = (kind: string): JsonSchema => {
  const crd = crds().find(({ spec }) => (spec as { names: { kind: string } }).names.kind === kind)!;
  const { versions } = crd.spec as { versions: { schema: { openAPIV3Schema: JsonSchema } }[] };
  return versions[0]!.schema.openAPIV3Schema.properties!.spec!;
};

it('there is one for each way to run', () => {
  expect(files).toEqual([
    ...['autoscaled.yaml', 'etcd.yaml', 'online.yaml', 'python-dlrm.yaml', 'small.yaml', 'spot.yaml'],
  ]);
});

it.each(files)('%s', (name) => {
  const objects = loaded(name);
  expect(objects.length).toBeGreaterThan(0);
  for (const object of objects) {
    const schema = specOf(object.kind);
    expect(problems(schema, object.spec, 'spec')).toEqual([]);
    const job = { ...object, spec: filled(schema, object.spec) as TrainingJob['spec'] };
    for (const role of ['ps', 'worker'] as const) {
      const { spec } = podOf(job, role, 0) as unknown as {
        spec: { containers: { command: string[]; args: string[] }[] };
      };
      const [first] = job.spec.replicaSpecs[role].command ?? [role];
      const [container] = spec.containers;
      expect([container!.command[0], container!.args[0]]).toContain(first);
    }
  }
});

it('the loader fills the claim that the others have, with what the image has', () => {
  type Spec = { template: { spec: { containers: { args: string[]; image: string }[]; volumes: object[] } } };
  const [claim, job] = loaded(LOADER) as unknown as [{ metadata: { name: string } }, { spec: Spec }];
  const { containers, volumes } = job.spec.template.spec;
  const { name: claimName } = claim.metadata;
  const { spec } = loaded('small.yaml')[0]!;
  for (const given of [volumes, spec.replicaSpecs.worker.template!.spec!.volumes])
    expect(given).toMatchObject([{ persistentVolumeClaim: { claimName } }]);
  expect(containers[0]!.image).toBe(spec.image);
  const [, module = ''] = /from '\/app\/dist\/(.*)\.js'/.exec(containers[0]!.args[0]!)!;
  expect(existsSync(join(ROOT, `${module}.ts`))).toBe(true);
});

const cores = (text = '0'): number => (text.endsWith('m') ? Number(text.slice(0, -1)) / 1000 : Number(text));
const coresOf = (template: TrainingJob['spec']['replicaSpecs']['ps']['template']): number =>
  cores(template?.spec?.containers?.[0]?.resources?.requests?.cpu as string | undefined);

it.each(['small.yaml', 'python-dlrm.yaml'])(
  '%s has room on two cores beside a control plane of kind',
  (name) => {
    const operators = loadAll(readFileSync(join(ROOT, 'deploy/operator.yaml'), 'utf8')) as {
      kind: string;
      spec: {
        replicas: number;
        template: NonNullable<TrainingJob['spec']['replicaSpecs']['ps']['template']>;
      };
    }[];
    const { replicas, template } = operators.find(({ kind }) => kind === 'Deployment')!.spec;
    const { ps, worker } = loaded(name)[0]!.spec.replicaSpecs;
    const asked =
      replicas * coresOf(template) +
      ps.replicas! * coresOf(ps.template) +
      worker.replicas * coresOf(worker.template);
    // API server, controllers, scheduler, etcd, two times DNS, and the network of kind.
    const controlPlane = 0.25 + 0.2 + 0.1 + 0.1 + 2 * 0.1 + 0.1;
    expect(asked + controlPlane).toBeLessThanOrEqual(2);
  },
);

it('what is wrong is found', () => {
  const [small] = loaded('small.yaml');
  const spec = structuredClone(small!.spec) as unknown as Record<string, unknown>;
  const wrong = { ...spec, failureDomain: 'rack', code: { k: 0 }, color: 'red', image: undefined };
  expect(problems(specOf('TrainingJob'), wrong, 'spec')).toEqual([
    ...['spec.image is no string', 'spec.code.k is out of range', 'spec.failureDomain is none of its values'],
    'spec.color is unknown',
  ]);
});
