/** Makes a schema of the JSON of a user. An error is one line: where, what must be there, what is there. */
import { readFile } from 'node:fs/promises';
import { causedBy, KintsugiError, valueText } from '../common/errors.js';
import { checkText } from '../common/options.js';
import type { InitializerSpec } from '../engine/native.js';
import {
  isOptimizerKind,
  NO_EXTRAS,
  OPTIMIZER_KINDS,
  optimizerOf,
  optimizerProblem,
} from '../engine/optimizers.js';
import {
  COMMON_TABLE,
  DEFAULT_LIMIT,
  type DenseColumn,
  type Label,
  type Schema,
  type SchemaTable,
  type SparseColumn,
  type Transform,
} from './schema.js';

const MAX_LIMIT = 10_000;
const MAX_DIM = 65_536;

/** A value with its place, for messages. */
class GivenFields {
  constructor(
    readonly value: unknown,
    readonly place: string,
  ) {}

  wrong(expected: string): KintsugiError {
    const found = this.value === undefined ? 'nothing' : valueText(this.value, 60);
    return new KintsugiError('BAD_ARGUMENT', `${this.place} must be ${expected}, not ${found}`);
  }

  get missing(): boolean {
    return this.value === undefined;
  }

  get isObject(): boolean {
    return typeof this.value === 'object' && this.value !== null && !Array.isArray(this.value);
  }

  text(expected = 'a string that is not empty'): string {
    if (typeof this.value !== 'string' || this.value === '') throw this.wrong(expected);
    return this.value;
  }

  number(expected = 'a number'): number {
    if (typeof this.value !== 'number' || !Number.isFinite(this.value)) throw this.wrong(expected);
    return this.value;
  }

  integer(least: number, most: number): number {
    const expected = `an integer from ${least} to ${most}`;
    const value = this.number(expected);
    if (!Number.isSafeInteger(value) || value < least || value > most) throw this.wrong(expected);
    return value;
  }

  boolean(): boolean {
    if (typeof this.value !== 'boolean') throw this.wrong('true or false');
    return this.value;
  }

  oneOf<T extends string>(...words: readonly T[]): T {
    const found = words.find((word) => word === this.value);
    if (found === undefined) throw this.wrong(`one of ${words.map((word) => `"${word}"`).join(', ')}`);
    return found;
  }

  list(expected: string): GivenFields[] {
    if (!Array.isArray(this.value)) throw this.wrong(expected);
    return (this.value as unknown[]).map((each, index) => new GivenFields(each, `${this.place}[${index}]`));
  }

  /** The fields of an object that has no others. */
  fields<Name extends string>(expected: string, ...names: readonly Name[]): Record<Name, GivenFields> {
    if (!this.isObject) throw this.wrong(expected);
    const value = this.value as Record<string, unknown>;
    const surplus = Object.keys(value).find((name) => !(names as readonly string[]).includes(name));
    if (surplus !== undefined) {
      const text = `${this.place} has no field "${surplus}"; it has ${names.join(', ')}`;
      throw new KintsugiError('BAD_ARGUMENT', text);
    }
    return Object.fromEntries(names.map((name) => [name, this.field(value, name)])) as Record<
      Name,
      GivenFields
    >;
  }

  entries(expected: string): [string, GivenFields][] {
    if (!this.isObject) throw this.wrong(expected);
    const value = this.value as Record<string, unknown>;
    return Object.keys(value).map((name) => [name, this.field(value, name)]);
  }

  private field(value: Record<string, unknown>, name: string): GivenFields {
    return new GivenFields(Object.hasOwn(value, name) ? value[name] : undefined, joined(this.place, name));
  }
}

/** A place ends in ": " where no field is named yet. */
function joined(place: string, name: string): string {
  return place.endsWith(': ') ? `${place}${name}` : `${place}.${name}`;
}

/** A schema that a file of JSON holds. @throws BAD_ARGUMENT */
export async function readSchema(file: string): Promise<Schema> {
  let value: unknown;
  try {
    value = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', `--schema ${file} must be a file of JSON`);
  }
  return parseSchema(value, file);
}

/**
 * @param where names the schema in messages
 * @throws BAD_ARGUMENT with the place, what was expected there and what is there
 */
export function parseSchema(value: unknown, where: string): Schema {
  checkText('parseSchema: where', where);
  const whole = new GivenFields(value, where);
  whole.fields('an object', 'label', 'dense', 'sparse', 'tables', 'weight', 'time', 'header');
  const { label, dense, sparse, tables, weight, time, header } = new GivenFields(value, `${where}: `).fields(
    'an object',
    ...(['label', 'dense', 'sparse', 'tables', 'weight', 'time', 'header'] as const),
  );
  const labels = Array.isArray(label.value) ? label.list('') : [label];
  if (labels.length === 0) throw label.wrong('a column, or a list of columns that is not empty');
  const sparseColumns = sparse.missing ? [] : sparse.list('a list of columns').map(sparseColumn);
  const denseColumns = dense.missing ? [] : dense.list('a list of columns').map(denseColumn);
  if (sparseColumns.length === 0) throw sparse.wrong('a list of at least one column');
  checkNames(dense, denseColumns);
  checkNames(sparse, sparseColumns);
  return {
    labels: labels.map(labelOf),
    dense: denseColumns,
    sparse: sparseColumns,
    tables: tablesOf(tables, sparseColumns),
    weight: weight.missing ? undefined : weight.text(),
    time: time.missing ? undefined : time.text(),
    header: header.missing ? undefined : headerOf(header),
  };
}

function checkNames(list: GivenFields, columns: readonly { name: string }[]): void {
  const seen = new Map<string, number>();
  for (const [index, { name }] of columns.entries()) {
    const before = seen.get(name);
    if (before !== undefined) {
      const text = `the name "${name}" is that of [${before}], too; give one of them a "name"`;
      throw new KintsugiError('BAD_ARGUMENT', `${list.place}[${index}]: ${text}`);
    }
    seen.set(name, index);
  }
}

function headerOf(header: GivenFields): string[] {
  const names = header.list('a list of the names of all columns').map((name) => name.text());
  if (names.length === 0) throw header.wrong('a list of the names of all columns');
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', `${header.place} names "${twice}" more than once`);
  return names;
}

function labelOf(given: GivenFields): Label {
  if (typeof given.value === 'string') return { column: given.text() };
  const { column, atLeast } = given.fields('a column, or { column, atLeast }', 'column', 'atLeast');
  return { column: column.text(), atLeast: atLeast.missing ? undefined : atLeast.number() };
}

function transformOf(given: GivenFields): Transform {
  if (given.missing) return { kind: 'none' };
  const expected = '"log1p", { "normalise": { "mean", "std" } } or { "bucketise": [boundaries] }';
  if (given.value === 'log1p') return { kind: 'log1p' };
  const { normalise, bucketise } = given.fields(expected, 'normalise', 'bucketise');
  if (normalise.missing === bucketise.missing) throw given.wrong(expected);
  if (!normalise.missing) {
    const { mean, std } = normalise.fields('{ mean, std }', 'mean', 'std');
    if (std.number('a number above 0') <= 0) throw std.wrong('a number above 0');
    return { kind: 'normalise', mean: mean.number(), std: std.number() };
  }
  const boundaries = bucketise.list('a list of numbers that grow').map((each) => each.number());
  if (boundaries.length === 0 || boundaries.some((each, index) => each <= boundaries[index - 1]!))
    throw bucketise.wrong('a list of numbers that grow');
  return { kind: 'bucketise', boundaries };
}

function denseColumn(given: GivenFields): DenseColumn {
  if (typeof given.value === 'string')
    return { name: given.text(), column: given.text(), transform: { kind: 'none' }, width: 1 };
  const expected = 'a column, or { column, name, transform }';
  const { column, name, transform } = given.fields(expected, 'column', 'name', 'transform');
  const what = transformOf(transform);
  return {
    name: name.missing ? column.text() : name.text(),
    column: column.text(),
    transform: what,
    width: what.kind === 'bucketise' ? what.boundaries.length + 1 : 1,
  };
}

const SPARSE_FIELDS = [
  ...(['column', 'name', 'key', 'encoding', 'table', 'multi'] as const),
  ...(['pooling', 'limit', 'weights', 'separator'] as const),
];

function sparseColumn(given: GivenFields): SparseColumn {
  const object =
    typeof given.value === 'string' ? new GivenFields({ column: given.text() }, given.place) : given;
  const fields = object.fields(`a column, or { ${SPARSE_FIELDS.join(', ')} }`, ...SPARSE_FIELDS);
  const { column, name, key, table, pooling, limit, weights, separator } = fields;
  const multi = fields.multi.missing ? false : fields.multi.boolean();
  if (!multi) {
    const surplus = [pooling, limit, weights, separator].find((each) => !each.missing);
    if (surplus) {
      const text = `${surplus.place} needs "multi": true: this column has one value`;
      throw new KintsugiError('BAD_ARGUMENT', text);
    }
  }
  const kind = key.missing ? 'string' : key.oneOf('integer', 'hash', 'hash64', 'string');
  const { encoding } = fields;
  if (!encoding.missing && kind !== 'string') {
    const text = `${encoding.place} needs "key": "string": other keys are digits`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  return {
    name: name.missing ? column.text() : name.text(),
    column: column.text(),
    key: kind,
    ...(!encoding.missing && { encoding: encoding.oneOf('bytes', 'utf8') }),
    table: table.missing ? COMMON_TABLE : table.text(),
    shared: !table.missing,
    multi,
    pooling: pooling.missing ? 'mean' : pooling.oneOf('sum', 'mean', 'none'),
    limit: multi ? (limit.missing ? DEFAULT_LIMIT : limit.integer(1, MAX_LIMIT)) : 1,
    weights: weights.missing ? undefined : weights.text(),
    separator: separator.missing ? '|' : separator.text(),
  };
}

function tablesOf(given: GivenFields, columns: readonly SparseColumn[]): SchemaTable[] {
  const entries = given.missing ? [] : given.entries('an object of tables by name');
  const known = new Map(entries.map(([name, table]) => [name, tableOf(name, table)]));
  const used = [...new Set(columns.map(({ table }) => table))];
  const unused = entries.find(([name]) => !used.includes(name));
  if (unused) throw new KintsugiError('BAD_ARGUMENT', `${unused[1].place} is used by no sparse column`);
  return used.map((name) => known.get(name) ?? { name });
}

function tableOf(name: string, given: GivenFields): SchemaTable {
  const fields = given.fields('{ dim, optimizer, initializer }', 'dim', 'optimizer', 'initializer');
  const { dim, optimizer, initializer } = fields;
  return {
    name,
    dim: dim.missing ? undefined : dim.integer(1, MAX_DIM),
    optimizer: optimizer.missing ? undefined : optimizerSpecOf(optimizer),
    initializer: initializer.missing ? undefined : initializerOf(initializer),
  };
}

function optimizerSpecOf(given: GivenFields): SchemaTable['optimizer'] {
  const expected = `{ kind, lr, ... } with one of ${OPTIMIZER_KINDS.join(', ')}`;
  if (!given.isObject) throw given.wrong(expected);
  const { kind, lr, ...rest } = given.value as Record<string, unknown>;
  if (!isOptimizerKind(kind) || typeof lr !== 'number') throw given.wrong(expected);
  const usual = optimizerOf(kind, lr);
  const known = { ...usual, ...NO_EXTRAS };
  const surplus = Object.keys(rest).find((name) => !Object.hasOwn(known, name));
  if (surplus !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', `${given.place}: ${kind} has no parameter "${surplus}"`);
  const spec = { ...usual, ...rest } as typeof usual;
  const problem = optimizerProblem(spec);
  if (problem !== undefined) throw new KintsugiError('BAD_ARGUMENT', `${given.place}: ${problem}`);
  return spec;
}

function initializerOf(given: GivenFields): InitializerSpec {
  const kinds = {
    zeros: [],
    constant: ['value'],
    uniform: ['low', 'high'],
    normal: ['mean', 'std'],
  } as const;
  const all = given.fields('{ kind, ... }', 'kind', 'value', 'low', 'high', 'mean', 'std');
  const kind = all.kind.oneOf('zeros', 'constant', 'uniform', 'normal');
  const fields = given.fields('', 'kind', ...kinds[kind]) as Record<string, GivenFields>;
  const numbers = kinds[kind].map((name) => [name, fields[name]!.number()]);
  return { kind, ...Object.fromEntries(numbers) } as InitializerSpec;
}
