/**
 * Declares what a custom resource may hold. One declaration gives the OpenAPI schema that the API server
 * validates with, and the TypeScript type that the operator reads.
 */

/** A structural schema of OpenAPI v3, as far as custom resources use it. */
export interface JsonSchema {
  type?: 'object' | 'array' | 'string' | 'integer' | 'number' | 'boolean';
  format?: string;
  description?: string;
  default?: unknown;
  enum?: readonly string[];
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  nullable?: true;
  items?: JsonSchema;
  properties?: Record<string, JsonSchema>;
  additionalProperties?: JsonSchema;
  required?: string[];
  'x-kubernetes-preserve-unknown-fields'?: true;
  'x-kubernetes-list-type'?: 'atomic' | 'map' | 'set';
  'x-kubernetes-list-map-keys'?: readonly string[];
  'x-kubernetes-validations'?: readonly SchemaRule[];
}

/** A rule in CEL, and the sentence that a user reads who breaks it. */
export interface SchemaRule {
  rule: string;
  message: string;
}

type Presence = 'required' | 'defaulted' | 'optional';

/** A field of type T. Objects from the API server always have a field that is required or has a default. */
export interface Field<T, P extends Presence = Presence> {
  readonly schema: JsonSchema;
  readonly presence: P;
  /** The sentence of an optional field that is fixed: the object that has it checks that. */
  readonly fixed?: string;
  /** Never set: it carries the type. */
  readonly holds?: T;
}
type Fields = Readonly<Record<string, Field<unknown>>>;
/** The type of what a field holds. */
export type Holds<F> = F extends Field<infer T, Presence> ? T : never;
type There<F extends Fields> = {
  [K in keyof F as F[K]['presence'] extends 'optional' ? never : K]: Holds<F[K]>;
};
type Absent<F extends Fields> = {
  [K in keyof F as F[K]['presence'] extends 'optional' ? K : never]?: Holds<F[K]> | undefined;
};
type Flat<T> = { [K in keyof T]: T[K] };
type ObjectOf<F extends Fields> = Flat<There<F> & Absent<F>>;

function scalar<T>(schema: JsonSchema): Field<T, 'optional'> {
  return { schema, presence: 'optional' };
}

export const text = (description: string, more: JsonSchema = {}) =>
  scalar<string>({ type: 'string', description, ...more });
export const time = (description: string) => text(description, { format: 'date-time' });
export const integer = (description: string, minimum: number, maximum?: number) =>
  scalar<number>({ type: 'integer', description, minimum, ...(maximum === undefined ? {} : { maximum }) });
export const number = (description: string) => scalar<number>({ type: 'number', description });
export const flag = (description: string) => scalar<boolean>({ type: 'boolean', description });
export const choice = <const V extends string>(description: string, values: readonly V[]) =>
  scalar<V>({ type: 'string', description, enum: values });
/**
 * An object of another API, which says what else it may have. `fields`: those that are read here. They have
 * the right type.
 */
export function open<T>(description: string, fields: Fields = {}): Field<T, 'optional'> {
  const { schema } = object(description, fields);
  return scalar({ ...schema, 'x-kubernetes-preserve-unknown-fields': true });
}

export function list<F extends Field<unknown>>(
  description: string,
  item: F,
  more: JsonSchema = {},
): Field<Holds<F>[], 'optional'> {
  return scalar({ type: 'array', description, items: item.schema, ...more });
}

export function map<F extends Field<unknown>>(
  description: string,
  value: F,
): Field<Record<string, Holds<F>>, 'optional'> {
  return scalar({ type: 'object', description, additionalProperties: value.schema });
}

export function object<F extends Fields>(
  description: string,
  fields: F,
  rules: readonly SchemaRule[] = [],
): Field<ObjectOf<F>, 'optional'> {
  const required = Object.keys(fields).filter((name) => fields[name]?.presence === 'required');
  const all = [...Object.entries(fields).flatMap(([name, { fixed }]) => fixedRule(name, fixed)), ...rules];
  return scalar({
    type: 'object',
    description,
    properties: Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.schema])),
    ...(required.length > 0 ? { required } : {}),
    ...(all.length > 0 ? { 'x-kubernetes-validations': all } : {}),
  });
}

export function required<T>(field: Field<T>): Field<T, 'required'> {
  return { schema: field.schema, presence: 'required' };
}

/**
 * A field that the API server fills in. The default `{}` of an object has the defaults of its fields filled
 * in.
 */
export function defaulted<T>(field: Field<T>, value: T | Record<string, never>): Field<T, 'defaulted'> {
  return { schema: { ...field.schema, default: value }, presence: 'defaulted' };
}

/**
 * A field that never changes. A rule of the field itself runs only where it was there before and still is: an
 * optional one has its rule in the object around it, so that it is neither added nor taken away.
 */
export function immutable<T, P extends Presence>(field: Field<T, P>, message: string): Field<T, P> {
  if (field.presence === 'optional') return { ...field, fixed: message };
  const rules = field.schema['x-kubernetes-validations'] ?? [];
  const fixed = { rule: 'self == oldSelf', message };
  return { ...field, schema: { ...field.schema, 'x-kubernetes-validations': [...rules, fixed] } };
}

/** In CEL: whether an optional field is what it was, or absent as it was. */
export const isUnchanged = (name: string, self = 'self', oldSelf = 'oldSelf'): string =>
  `has(${self}.${name}) == has(${oldSelf}.${name}) && ` +
  `(!has(${self}.${name}) || ${self}.${name} == ${oldSelf}.${name})`;

const fixedRule = (name: string, message: string | undefined): SchemaRule[] =>
  message === undefined ? [] : [{ rule: isUnchanged(name), message }];
