/** The files that are meant by paths, directories and patterns. */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe } from '../errors.js';
import { bad, sizeOf } from './bytes.js';
import { isRemote, remoteFiles } from './object-store.js';

/** Names that begin so are not data: what programs leave beside it, such as `_SUCCESS`. */
const HIDDEN = /^[._]/;
const PATTERN = /[*?]/;

/**
 * Files in the order of the arguments. A directory stands for the files in it and below it, `*` and `?` in a
 * path for what they match within one name; both are taken in the order of their names, so that every worker
 * has the same order. @throws BAD_DATA where there is no file, or something else than one
 */
export async function expandPaths(paths: readonly string[]): Promise<string[]> {
  return (await Promise.all(paths.map(expand))).flat();
}

async function expand(path: string): Promise<string[]> {
  if (isRemote(path)) return expandRemote(path);
  const there = await stat(path).catch(() => undefined);
  if (there?.isDirectory()) return someOf(await below(path), `${path}: the directory has no data files`);
  if (there) await sizeOf(path);
  if (there || !PATTERN.test(path)) return [path];
  return someOf(await matching(path), `${path}: no file matches`);
}

/** An object store has no directories: one is what the names of files begin with. */
async function expandRemote(path: string): Promise<string[]> {
  const fixed = path.slice(0, path.search(/[*?]|$/));
  const files = (await remoteFiles(fixed)).sort();
  if (files.includes(path)) return [path];
  const shown = (file: string, from: number) =>
    file
      .slice(from)
      .split('/')
      .every((name) => name !== '' && !HIDDEN.test(name));
  if (fixed === path) {
    const directory = path.replace(/\/*$/, '/');
    const inside = files.filter((file) => file.startsWith(directory) && shown(file, directory.length));
    return inside.length > 0 || path.endsWith('/')
      ? someOf(inside, `${path}: the directory has no data files`)
      : [path];
  }
  const match = matcherOf(path);
  const from = fixed.lastIndexOf('/') + 1;
  return someOf(
    files.filter((file) => match.test(file) && shown(file, from)),
    `${path}: no file matches`,
  );
}

/** What a pattern matches; neither `*` nor `?` goes beyond a name. */
function matcherOf(pattern: string): RegExp {
  const text = pattern
    .replace(/[\\^$.+()[\]{}|]/g, '\\$&')
    .replaceAll('*', '[^/]*')
    .replaceAll('?', '[^/]');
  return new RegExp(`^${text}$`, 'us');
}

function someOf(files: string[], otherwise: string): string[] {
  if (files.length === 0) throw bad(otherwise);
  return files;
}

async function namesIn(directory: string): Promise<{ name: string; directory: boolean }[]> {
  try {
    const entries = await readdir(directory);
    const isDirectory = async (name: string) => (await stat(join(directory, name))).isDirectory();
    return await Promise.all(
      entries.sort().map(async (name) => ({ name, directory: await isDirectory(name) })),
    );
  } catch (error) {
    throw bad(`${directory}: ${describe(error)}`, error);
  }
}

async function below(directory: string): Promise<string[]> {
  const entries = (await namesIn(directory)).filter(({ name }) => !HIDDEN.test(name));
  const files = entries.map((entry) => {
    const path = join(directory, entry.name);
    return entry.directory ? below(path) : [path];
  });
  return (await Promise.all(files)).flat();
}

async function matching(pattern: string): Promise<string[]> {
  const parts = pattern.split('/');
  let found = [parts[0] === '' ? '/' : '.'];
  for (const [index, part] of parts.entries()) {
    if (part === '') continue;
    const last = index === parts.length - 1;
    const next = found.map(async (directory) => {
      if (!PATTERN.test(part)) return [join(directory, part)];
      const match = matcherOf(part);
      const entries = await namesIn(directory);
      const fitting = entries.filter((each) => match.test(each.name) && each.directory !== last);
      return fitting
        .filter(({ name }) => !HIDDEN.test(name) || HIDDEN.test(part))
        .map(({ name }) => join(directory, name));
    });
    found = (await Promise.all(next)).flat();
  }
  const there = await Promise.all(found.map((file) => stat(file).catch(() => undefined)));
  return found.filter((_, index) => there[index]?.isFile());
}
