/**
 * deploy/crds is written from src/fleet/operator/types.ts: `npx vitest run test/fleet/operator/crds.test.ts
 * -u`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { dump, load, loadAll } from 'js-yaml';
import { expect, it } from 'vitest';
import { RESOURCES } from '../../../src/fleet/operator/api/resources.js';
import { crds } from '../../../src/fleet/operator/crds.js';
import { fixturesOf } from '../../../src/fleet/operator/reconcile/fixtures.js';
import { podOf } from '../../../src/fleet/operator/reconcile/pods.js';
import type { JsonSchema } from '../../../src/fleet/operator/schema.js';
import { LONGEST_JOB_NAME } from '../../../src/fleet/operator/types.js';
import { jobOf } from './support.js';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../../..');
const STORE = { size: '1Gi', deletionPolicy: 'Delete' as const };
const operatorYaml = readFileSync(join(ROOT, 'deploy/operator.yaml'), 'utf8');

it('deploy/crds has every custom resource as the types declare it', async () => {
  for (const crd of crds()) {
    const head = '# Written from src/fleet/operator/types.ts (test/fleet/operator/crds.test.ts).';
    const text = `${head}\n${dump(crd, { lineWidth: 108, noRefs: true })}`;
    for (const folder of ['crds', 'chart/crds'])
      await expect(text).toMatchFileSnapshot(join(ROOT, `deploy/${folder}/${crd.metadata.name}.yaml`));
  }
});

it('deploy/install.yaml is all of it in one file', async () => {
  const head =
    '# The custom resources and the operator, in one file (test/fleet/operator/crds.test.ts writes it).';
  const parts = [...crds().map((crd) => dump(crd, { lineWidth: 108, noRefs: true })), operatorYaml];
  await expect(`${head}\n${parts.join('---\n')}`).toMatchFileSnapshot(join(ROOT, 'deploy/install.yaml'));
});

it('the operator may do what it does, and no more', () => {
  const documents = loadAll(operatorYaml) as { kind: string; rules?: { resources: string[] }[] }[];
  const named = documents.flatMap(({ rules = [] }) => rules.flatMap(({ resources }) => resources));
  const used = [...new Set(Object.values(RESOURCES).map(({ plural }) => plural as string))];
  expect([...new Set(named.map((name) => name.split('/')[0]))].sort()).toEqual([...used].sort());
});

it('the chart has the same rights', async () => {
  const role = (loadAll(operatorYaml) as { kind: string; rules?: object[] }[]).find(
    ({ kind }) => kind === 'Role',
  );
  const head = '# Those of the Role in deploy/operator.yaml (test/fleet/operator/crds.test.ts writes it).';
  const text = `${head}\n${dump(role!.rules, { lineWidth: 108 })}`;
  await expect(text).toMatchFileSnapshot(join(ROOT, 'deploy/chart/rules.yaml'));
});

it('the chart has a schema of its values: each is in it, and no other one is taken', () => {
  const chart = (name: string) => readFileSync(join(ROOT, 'deploy/chart', name), 'utf8');
  const schema = JSON.parse(chart('values.schema.json')) as JsonSchema;
  const values = load(chart('values.yaml')) as Record<string, unknown>;
  // "global" is of Helm itself.
  expect(
    Object.keys(schema.properties!)
      .filter((name) => name !== 'global')
      .sort(),
  ).toEqual(Object.keys(values).sort());
  for (const name of ['image', 'metrics'])
    expect(Object.keys(schema.properties![name]!.properties!).sort()).toEqual(
      Object.keys(values[name] as object).sort(),
    );
  for (const each of [schema, schema.properties!.image, schema.properties!.metrics])
    expect(each!.additionalProperties).toBe(false);
  const used = readdirSync(join(ROOT, 'deploy/chart/templates')).flatMap((file) => [
    ...chart(`templates/${file}`).matchAll(/\.Values\.(\w+)/g),
  ]);
  for (const [, name] of used) expect(values).toHaveProperty(name!);
});

/** Violations of what the API server demands of a structural schema, and of defaults. */
function problems(schema: JsonSchema, path: string): string[] {
  const found: string[] = [];
  if (!schema.type) found.push(`${path} has no type`);
  for (const [name, field] of Object.entries(schema.properties ?? {}))
    found.push(...problems(field, `${path}.${name}`));
  if (schema.items) found.push(...problems(schema.items, `${path}[]`));
  if (schema.additionalProperties) found.push(...problems(schema.additionalProperties, `${path}{}`));
  if (schema.default !== undefined && schema.enum && !schema.enum.includes(schema.default as string))
    found.push(`${path}: the default is none of its values`);
  return found;
}

/** Fields with a rule that looks back, and that may be absent: the rule would not run then. */
function evaded(schema: JsonSchema, path: string): string[] {
  const { properties = {}, required = [], items } = schema;
  const own = Object.entries(properties).flatMap(([name, field]) => {
    const rules = field['x-kubernetes-validations'] ?? [];
    const there = required.includes(name) || field.default !== undefined;
    const evades = !there && rules.some(({ rule }) => rule.includes('oldSelf'));
    return [...(evades ? [`${path}.${name}`] : []), ...evaded(field, `${path}.${name}`)];
  });
  return [...own, ...(items ? evaded(items, `${path}[]`) : [])];
}

it('a field that is fixed can be neither added nor taken away', () => {
  for (const crd of crds()) {
    const { versions } = crd.spec as { versions: { schema: { openAPIV3Schema: JsonSchema } }[] };
    for (const { schema } of versions) expect(evaded(schema.openAPIV3Schema, 'object')).toEqual([]);
  }
});

it('schemas are structural', () => {
  for (const crd of crds()) {
    const { versions } = crd.spec as { versions: { schema: { openAPIV3Schema: JsonSchema } }[] };
    for (const { schema } of versions)
      expect(problems(schema.openAPIV3Schema, crd.metadata.name)).toEqual([]);
  }
});

it('the longest name of a job leaves room for all that is made of it', () => {
  const job = jobOf(
    { scheduler: { store: { ...STORE, etcd: { url: 'etcd://e:2379/x', schedulers: 7 } } } },
    'a'.repeat(LONGEST_JOB_NAME),
  );
  const objects = [
    ...fixturesOf(job, 7, { startPs: 4, life: 1 }, 4, new Set(['PodMonitor', 'PodGroup'])),
    ...(['ps', 'worker'] as const).map((role) => podOf(job, role, 2 ** 31)),
  ];
  const [, set] = objects;
  expect(set!.kind).toBe('StatefulSet');
  // Labels that the controller of StatefulSets gives its Pods: their names, and the revision.
  const given = [6, 'f'.repeat(10)].map((last) => `${set!.metadata.name}-${last}`);
  for (const label of [...given, ...objects.flatMap(({ metadata }) => Object.values(metadata.labels ?? {}))])
    expect(label.length).toBeLessThanOrEqual(63);
  expect(given[1]).toHaveLength(63);
  // Names of Pods are names of hosts, and that of the Service is one of a domain.
  for (const { kind, metadata } of objects)
    if (kind === 'Pod' || kind === 'Service') expect(metadata.name.length).toBeLessThanOrEqual(63);
});
