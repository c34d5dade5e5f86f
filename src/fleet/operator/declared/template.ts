/**
 * Template of the Pods of a role. What the operator reads of it has its type here. The rest goes to the API
 * server as it is, which refuses fields that it does not know when the Pod is made.
 *
 * A whole schema would refuse them when the job is applied. It has 63 kB for each of the three roles, without
 * descriptions, in place of 8 kB. And it would be that of one version of Kubernetes: fields of later versions
 * would be dropped silently for everybody but kubectl.
 */
import type { Container, PodTemplate } from '../objects.js';
import { type Field, list, map, object, open, required, text } from '../schema.js';

const NAMED = { name: required(text('', { minLength: 1 })) };
/** Objects with a name each. YAML has null for a list of which all lines are gone. */
const named = (fields: Parameters<typeof open>[1] = {}) =>
  list('', open<{ name: string }>('', { ...NAMED, ...fields }), {
    ...{ nullable: true, 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] },
  });
const others = () => list('', open<object>(''), { nullable: true });
/** An object that null takes away. */
const taken = () => {
  const { schema, presence } = open<object>('');
  return { schema: { ...schema, nullable: true as const }, presence };
};
const containers = (fields: Parameters<typeof open>[1] = {}) =>
  named({
    ...fields,
    ...{ env: others(), volumeMounts: others(), ports: others() },
    ...{ resources: taken(), securityContext: taken() },
  });

/** Fields of the container that runs the role which a template does not have. */
export const RESERVED = [
  ...(['command', 'args', 'restartPolicy', 'terminationMessagePath', 'terminationMessagePolicy'] as const),
] satisfies (keyof Container)[];
/** Why not, for the API server and for the operator. */
export const NOT_OF_TEMPLATE =
  'the container "kintsugi" of a template has no command, args and restartPolicy, which are ' +
  'replicaSpecs.ROLE.command, replicaSpecs.ROLE.args and, of ps and worker, ' +
  'replicaSpecs.ROLE.restartPolicy, and no terminationMessagePath and terminationMessagePolicy: the ' +
  'operator reads its last words';

/** Containers of a Pod, of which one runs the role. The limit bounds what the rule costs. */
function roleContainers() {
  const { schema, presence } = containers({
    ...{ command: list('', text(''), { nullable: true }), args: list('', text(''), { nullable: true }) },
    ...{ restartPolicy: text(''), terminationMessagePath: text(''), terminationMessagePolicy: text('') },
  });
  const none = RESERVED.map((field) => `!has(self.${field})`).join(' && ');
  const rules = [{ rule: `self.name != 'kintsugi' || (${none})`, message: NOT_OF_TEMPLATE }];
  return {
    schema: { ...schema, maxItems: 64, items: { ...schema.items, 'x-kubernetes-validations': rules } },
    presence,
  };
}

/** The spec of a template. A field of it that the operator would write over is refused. */
function ruled(
  description: string,
  fields: Parameters<typeof open>[1],
): Field<NonNullable<PodTemplate['spec']>, 'optional'> {
  const { schema, presence } = open<NonNullable<PodTemplate['spec']>>(description, fields);
  const message =
    'a template has no restartPolicy: that of ps and worker is replicaSpecs.ROLE.restartPolicy, and a ' +
    'scheduler always begins again';
  const rules = [{ rule: '!has(self.restartPolicy)', message }];
  return { schema: { ...schema, 'x-kubernetes-validations': rules }, presence };
}

const FIELDS = object('A PodTemplateSpec. It is merged into what the operator says, by names.', {
  metadata: object('', { labels: map('', text('')), annotations: map('', text('')) }),
  spec: ruled('Its container "kintsugi" runs the role.', {
    restartPolicy: text(''),
    containers: roleContainers(),
    initContainers: containers(),
    volumes: named(),
    ...{ tolerations: others(), readinessGates: others(), topologySpreadConstraints: others() },
    ...{ imagePullSecrets: others(), securityContext: taken() },
  }),
});

export const TEMPLATE: Field<PodTemplate, 'optional'> = { schema: FIELDS.schema, presence: 'optional' };
