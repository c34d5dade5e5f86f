/**
 * Models of the user: a file whose default export is a `ModelFactory`. The model that it returns is checked
 * here once, so that a mistake is named in the terms of the trainer interface and not by a failure deep
 * inside the loop.
 */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, KintsugiError } from '../../common/errors.js';
import { parseSchema, readSchema } from '../../data/parse-schema.js';
import type { Model, ModelFactory, ModelOptions } from './trainer.js';

function wrong(where: string, message: string, cause?: unknown): KintsugiError {
  return new KintsugiError('MODEL', `${where}: ${message}`, cause === undefined ? undefined : { cause });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function checkDeclaration(where: string, list: string, value: unknown): Record<string, unknown>[] {
  if (!Array.isArray(value)) throw wrong(where, `the model must have an array "${list}"`);
  const names = new Set<unknown>();
  for (const [index, item] of (value as unknown[]).entries()) {
    const place = `${list}[${index}]`;
    if (!isObject(item)) throw wrong(where, `${place} must be an object`);
    if (typeof item.name !== 'string' || item.name === '') throw wrong(where, `${place} needs a name`);
    if (names.has(item.name)) throw wrong(where, `${place}: the name "${item.name}" occurs twice`);
    names.add(item.name);
    for (const part of ['optimizer', 'initializer'] as const) {
      const spec = item[part];
      if (!isObject(spec) || typeof spec.kind !== 'string') {
        throw wrong(where, `${place} ("${item.name}") needs an ${part}: { kind: ... }`);
      }
    }
  }
  return value as Record<string, unknown>[];
}

const isPositiveInteger = (value: unknown) => Number.isSafeInteger(value) && (value as number) > 0;

/** Throws MODEL unless `value` follows the trainer interface. `where` opens the message. */
export function checkModel(value: unknown, where: string): Model {
  if (!isObject(value)) throw wrong(where, 'the factory must return a model');
  for (const { name, dim } of checkDeclaration(where, 'tables', value.tables)) {
    if (!isPositiveInteger(dim)) throw wrong(where, `table "${name}": dim must be a positive integer`);
  }
  for (const { name, shape } of checkDeclaration(where, 'tensors', value.tensors)) {
    if (!Array.isArray(shape) || shape.length === 0 || !shape.every(isPositiveInteger)) {
      throw wrong(where, `tensor "${name}": shape must be an array of positive integers`);
    }
  }
  for (const method of ['keys', 'step', 'predict']) {
    if (typeof value[method] !== 'function') throw wrong(where, `the model must have a method ${method}()`);
  }
  if (value.close !== undefined && typeof value.close !== 'function') {
    throw wrong(where, 'close must be a method');
  }
  return value as unknown as Model;
}

/** Exports of a file of the user. @throws MODEL, BAD_ARGUMENT for a source */
export async function moduleOf(path: string, kind: 'model' | 'source'): Promise<Record<string, unknown>> {
  const file = resolve(path);
  const refuse = (message: string, cause?: unknown) =>
    kind === 'model'
      ? wrong(path, message, cause)
      : new KintsugiError('BAD_ARGUMENT', `--source ${path}: ${message}`, { cause });
  if (!existsSync(file)) throw refuse(`no such ${kind} file`);
  try {
    return (await import(pathToFileURL(file).href)) as Record<string, unknown>;
  } catch (error) {
    throw refuse(`the ${kind} file could not be loaded: ${describe(error)}`, error);
  }
}

/**
 * The schema of the data: that of a file of JSON, or what a model file exports as `schema`. Undefined: the
 * Criteo layout. @throws BAD_ARGUMENT, MODEL
 */
export async function loadSchema(file: string | undefined, model: string | undefined) {
  const exported = model === undefined ? undefined : (await moduleOf(model, 'model')).schema;
  if (file === undefined)
    return exported === undefined ? undefined : parseSchema(exported, `${model}: schema`);
  if (exported === undefined) return readSchema(file);
  throw new KintsugiError('BAD_ARGUMENT', `--schema ${file}: the model file ${model} exports a schema, too`);
}

/**
 * The factory in a model file. Throws MODEL with the path when it is missing, fails to load or exports
 * something else.
 */
async function loadModelFactory(path: string): Promise<ModelFactory> {
  const module = await moduleOf(path, 'model');
  if (typeof module.default !== 'function') {
    throw wrong(path, 'the default export must be a function (options) => model');
  }
  return module.default as ModelFactory;
}

/**
 * Loads a model file and makes its model. Errors of the factory itself become MODEL, unless they have a code
 * already.
 */
export async function loadModel(path: string, options: ModelOptions): Promise<Model> {
  const factory = await loadModelFactory(path);
  let model: unknown;
  try {
    model = await factory(options);
  } catch (error) {
    if (error instanceof KintsugiError) throw error;
    throw wrong(path, `the factory failed: ${describe(error)}`, error);
  }
  return checkModel(model, path);
}
