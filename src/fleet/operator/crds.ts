/** CustomResourceDefinitions, from the declarations in types.ts. */
import type { ObjectManifest } from './objects.js';
import type { JsonSchema } from './schema.js';
import { type DeclaredKind, GROUP, KINDS, VERSION } from './types.js';

/** The schema without its empty descriptions. */
function told(schema: JsonSchema): JsonSchema {
  const { description, properties, items, additionalProperties, ...rest } = schema;
  const inside = Object.entries(properties ?? {}).map(([name, inner]) => [name, told(inner)]);
  return {
    ...(description ? { description } : {}),
    ...rest,
    ...(properties ? { properties: Object.fromEntries(inside) } : {}),
    ...(items ? { items: told(items) } : {}),
    ...(additionalProperties ? { additionalProperties: told(additionalProperties) } : {}),
  };
}

function crdOf(kind: DeclaredKind): ObjectManifest {
  const { plural, singular, shortNames, description, spec, status, rules, columns, scale } = kind;
  const schema: JsonSchema = {
    type: 'object',
    description,
    required: ['spec'],
    properties: { spec: spec.schema, status: status.schema },
    ...(rules ? { 'x-kubernetes-validations': rules } : {}),
  };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${GROUP}` },
    spec: {
      group: GROUP,
      scope: 'Namespaced',
      names: { kind: kind.kind, listKind: `${kind.kind}List`, plural, singular, shortNames },
      versions: [
        {
          name: VERSION,
          served: true,
          storage: true,
          schema: { openAPIV3Schema: told(schema) },
          subresources: { status: {}, ...(scale ? { scale } : {}) },
          additionalPrinterColumns: columns,
        },
      ],
    },
  };
}

export const crds = (): ObjectManifest[] => KINDS.map(crdOf);
