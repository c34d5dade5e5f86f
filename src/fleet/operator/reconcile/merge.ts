/**
 * Merges the template of a user into the Pod that the operator would make, as Kubernetes merges a strategic
 * merge patch:
 *
 * - Maps are merged field by field, at any depth. `null` takes a field away.
 * - A list whose type has a merge key is merged item by item: items of the same key are one. `null` there is
 *   a list without items, as YAML has it when all lines are gone.
 * - Any other list, and any other value, takes the place of the operator's.
 * - An object that may have one source only, such as a volume or a variable, has that of the template.
 *
 * Unlike there, the operator's items come first in a list. So a variable of the template may refer to one of
 * the operator's, which stands before it.
 */
import type { PodSpec, PodTemplate } from '../objects.js';

/** How a field is merged. Without one: maps by fields, everything else as a whole. */
interface Strategy {
  /** Field that tells the items of a list apart. */
  key?: string;
  /** True: fields that the template does not name go, the key excepted. */
  retains?: true;
  /** Fields of which an object has one at most. */
  oneOf?: readonly string[];
  /** True: a map is not merged, and takes the place of the operator's. */
  whole?: true;
  /** Strategies of fields of a map, or of the items of a list. */
  fields?: Readonly<Record<string, Strategy>>;
}

/** A probe or a hook does one thing. */
const HANDLER: Strategy = { oneOf: ['exec', 'grpc', 'httpGet', 'sleep', 'tcpSocket'] };

const CONTAINER_FIELDS: Readonly<Record<string, Strategy>> = {
  // A value, or where it comes from.
  env: { key: 'name', retains: true, fields: { valueFrom: { whole: true } } },
  ports: { key: 'containerPort' },
  volumeMounts: { key: 'mountPath' },
  volumeDevices: { key: 'devicePath' },
  ...{ livenessProbe: HANDLER, readinessProbe: HANDLER, startupProbe: HANDLER },
  lifecycle: { fields: { postStart: HANDLER, preStop: HANDLER } },
};

/** Merge keys as the API of Pods declares them (`x-kubernetes-patch-merge-key`). */
const POD_FIELDS: Readonly<Record<string, Strategy>> = {
  containers: { key: 'name', fields: CONTAINER_FIELDS },
  initContainers: { key: 'name', fields: CONTAINER_FIELDS },
  ephemeralContainers: { key: 'name', fields: CONTAINER_FIELDS },
  volumes: { key: 'name', retains: true },
  resourceClaims: { key: 'name', retains: true },
  ...{ imagePullSecrets: { key: 'name' }, schedulingGates: { key: 'name' }, hostAliases: { key: 'ip' } },
};

type FieldValues = Readonly<Record<string, unknown>>;

const isMap = (value: unknown): value is FieldValues =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Keys of a patch that are directives and no fields. They have no meaning in a template. */
const isDirective = (key: string): boolean =>
  key === '$patch' || key === '$retainKeys' || /^\$(deleteFromPrimitiveList|setElementOrder)\//.test(key);

/** Where the first directive of a patch is. Undefined: there is none. */
function directiveIn(value: unknown, path: string): string | undefined {
  if (Array.isArray(value)) {
    for (const [at, item] of value.entries()) {
      const found = directiveIn(item, `${path}[${at}]`);
      if (found !== undefined) return found;
    }
  }
  if (!isMap(value)) return undefined;
  for (const [key, inner] of Object.entries(value)) {
    const found = isDirective(key) ? `${path}.${key}` : directiveIn(inner, `${path}.${key}`);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Why a template cannot be merged; undefined: it can. `path`: where it is in the spec of the job. */
export function templateProblem(template: PodTemplate | undefined, path: string): string | undefined {
  const found = directiveIn(template, path);
  if (found === undefined) return undefined;
  return `"${found}" is a directive of a patch, and a template is none: name the fields that are to differ`;
}

function mergeFields(
  base: FieldValues,
  given: FieldValues,
  { key, retains, oneOf, fields }: Strategy,
): FieldValues {
  const chosen = oneOf?.find((name) => isMap(given[name]));
  const goes = (name: string): boolean =>
    (given[name] === null && fields?.[name]?.key === undefined) ||
    (retains === true && name !== key && !(name in given)) ||
    (chosen !== undefined && name !== chosen && oneOf!.includes(name) && !(name in given));
  const kept = Object.entries(base).filter(([name]) => !goes(name));
  const added = Object.entries(given).filter(([, value]) => value !== null);
  return Object.fromEntries([
    ...kept,
    ...added.map(([name, value]) => [name, mergeValue(base[name], value, fields?.[name] ?? {})]),
  ]);
}

/** Each item of the operator is merged with the first of the template that has its key. */
function mergeItems(base: readonly unknown[], given: readonly unknown[], strategy: Strategy): unknown[] {
  const { key = '', ...inner } = strategy;
  const left = [...given];
  const merged = base.map((item) => {
    const same = left.findIndex((one) => isMap(one) && isMap(item) && one[key] === item[key]);
    return same < 0 ? item : mergeValue(item, left.splice(same, 1)[0], { ...inner, key });
  });
  return [...merged, ...left.map((item) => mergeValue(undefined, item, { ...inner, key }))];
}

function mergeValue(base: unknown, given: unknown, strategy: Strategy): unknown {
  if (isMap(given) && strategy.whole) return given;
  if (isMap(given)) return mergeFields(isMap(base) ? base : {}, given, strategy);
  if (Array.isArray(given) && strategy.key !== undefined)
    return mergeItems(Array.isArray(base) ? base : [], given, strategy);
  return given;
}

/** The spec of a Pod with what its template says. Otherwise the operator's values stay. */
export const mergePodSpec = (base: PodSpec, given: PodSpec): PodSpec =>
  mergeFields(base as FieldValues, given as FieldValues, { fields: POD_FIELDS }) as PodSpec;
