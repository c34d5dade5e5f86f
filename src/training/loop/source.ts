/**
 * Opens the source of a worker's data: files, or a source that a file of the user makes. The results of such
 * a source are checked here, so that a mistake is named in the terms of the interface.
 */

import { causedBy, KintsugiError } from '../../common/errors.js';
import { fileSource } from '../../data/file-source.js';
import { checkWithoutSchema, openReader } from '../../data/open.js';
import { expandPaths } from '../../data/paths.js';
import type { Schema } from '../../data/schema.js';
import type { Source, SourceFactory, SourcePart } from '../../data/source.js';
import { moduleOf } from '../models/plugin.js';

export interface SourceFlags {
  /** A file whose default export is a `SourceFactory`; undefined: `paths` are files, directories, patterns */
  file: string | undefined;
  paths: readonly string[];
  schema: Schema | undefined;
  /** The source must be one that can be followed. */
  follow?: boolean | undefined;
}

/** @throws BAD_ARGUMENT for a source that cannot do what is asked for, BAD_DATA for what cannot be read */
export async function openSource({ file, paths, schema, follow = false }: SourceFlags): Promise<Source> {
  if (file !== undefined) return ownSource(file, paths, schema, follow);
  const files = await expandPaths(paths);
  if (!schema) checkWithoutSchema(files);
  return fileSource(openReader(schema), files);
}

const isCount = (value: unknown, least: number) => Number.isSafeInteger(value) && (value as number) >= least;

function partsProblem(parts: unknown): string | undefined {
  if (!Array.isArray(parts) || parts.length === 0) return 'list() must give at least one part';
  const names = new Set<unknown>();
  for (const [index, part] of (parts as (Partial<SourcePart> | undefined)[]).entries()) {
    const { name, size, perSample = 1, least = 1, mark = '' } = part ?? {};
    const where = `part ${index} of list()`;
    if (typeof name !== 'string' || name === '') return `${where} must have a name`;
    if (names.has(name)) return `${where} must have a name of its own, not "${name}" again`;
    names.add(name);
    if (!isCount(size, 0)) return `${where} ("${name}") must have a size of whole units`;
    if (!(perSample > 0 && perSample < Number.POSITIVE_INFINITY && isCount(least, 1)))
      return `${where} ("${name}") must have numbers above 0 in perSample and least`;
    if (typeof mark !== 'string') return `${where} ("${name}") must have a text as its mark`;
  }
  return undefined;
}

/** A source of the user's, whose failures are BAD_DATA with its file. */
async function ownSource(
  file: string,
  paths: readonly string[],
  schema: Schema | undefined,
  follow: boolean,
): Promise<Source> {
  const failed = (error: unknown, what: string) =>
    error instanceof KintsugiError ? error : causedBy(error, 'BAD_DATA', `--source ${file}: ${what}`);
  const refuse = (text: string) => new KintsugiError('BAD_ARGUMENT', `--source ${file}: ${text}`);
  const attempt = async <T>(what: string, work: () => Promise<T> | T): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      throw failed(error, what);
    }
  };
  const { default: factory } = await moduleOf(file, 'source');
  if (typeof factory !== 'function')
    throw refuse('the default export must be a function (options) => source');
  const source = await attempt('its function', () => (factory as SourceFactory)({ paths, schema }));
  if (typeof source?.list !== 'function' || typeof source.read !== 'function')
    throw refuse('a source must have methods list() and read()');
  if (follow && !source.sizes) throw refuse('--follow needs a source with a method sizes()');
  const { count, sizes, changed, resume } = source;
  return {
    async list() {
      const parts = await attempt('list()', () => source.list());
      const problem = partsProblem(parts);
      if (problem !== undefined) throw refuse(problem);
      return parts;
    },
    async *read(range) {
      try {
        yield* source.read(range);
      } catch (error) {
        throw failed(error, `read() of ${range.begin} to ${range.end} of part ${range.part}`);
      }
    },
    ...(count && { count: () => attempt('count()', () => count.call(source)) }),
    ...(sizes && { sizes: () => attempt('sizes()', () => sizes.call(source)) }),
    ...(resume && { resume: (known) => attempt('resume()', () => resume.call(source, known)) }),
    ...(changed && { changed: (signal) => changed.call(source, signal) }),
    close: () => source.close?.(),
  };
}
