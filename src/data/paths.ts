/** Paths, directories and patterns as lists of files. */
import { readdir, realpath, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { describe } from '../common/errors.js';
import { bad, sizeOf } from './bytes.js';
import { isRemote, remoteFiles } from './object-store.js';

/** Names that begin so are not data: programs leave such files beside it, for example `_SUCCESS`. */
const HIDDEN = /^[._]/;
const PATTERN = /[*?]/;

/**
 * Files in the order of the arguments. A directory stands for the files in it and below it, `*` and `?` in a
 * path for what they match within one name; both are taken in the order of their names, so that every worker
 * has the same order. @throws BAD_DATA where there is no file, or something else than one, or the same file
 * or directory twice, also by a link of either kind
 */
export async function expandPaths(paths: readonly string[]): Promise<string[]> {
  const files = (await Promise.all(paths.map(expand))).flat();
  await checkOnce(files);
  return files;
}

/** A file that is there twice would be trained twice. @throws BAD_DATA */
async function checkOnce(files: readonly string[]): Promise<void> {
  const seen = new Map<string, string>();
  for (const file of files) {
    const real = await identity(file);
    const other = seen.get(real);
    if (other === file) throw bad(`${file}: is named more than once`);
    if (other !== undefined) throw bad(`${file}: is the same file as ${other}`);
    seen.set(real, file);
  }
}

/** The same text for all names of a file; hard links are names, too. */
async function identity(file: string): Promise<string> {
  if (isRemote(file)) return file;
  const { dev, ino, nlink } = await stat(file, { bigint: true }).catch(() => ({
    dev: 0n,
    ino: 0n,
    nlink: 0n,
  }));
  if (nlink > 1n) return `${dev}:${ino}`;
  return realpath(file).catch(() => resolve(file));
}

async function expand(path: string): Promise<string[]> {
  if (isRemote(path)) return expandRemote(path);
  const there = await stat(path).catch(() => undefined);
  if (there?.isDirectory()) return someOf(await below(path), `${path}: the directory has no data files`);
  if (there) await sizeOf(path);
  if (there || !PATTERN.test(path)) return [path];
  return someOf(await matching(path), `${path}: no file matches`);
}

/** An object store has no directories: there a directory is a common beginning of the names of files. */
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

/** The regular expression of a pattern. Neither `*` nor `?` matches a slash. */
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

/** Names in a directory that are wanted. What else is there may be a link that leads nowhere. */
async function namesIn(
  directory: string,
  wanted: (name: string) => boolean,
): Promise<{ name: string; directory: boolean }[]> {
  try {
    const entries = (await readdir(directory)).filter(wanted);
    const isDirectory = async (name: string) => (await stat(join(directory, name))).isDirectory();
    return await Promise.all(
      entries.sort().map(async (name) => ({ name, directory: await isDirectory(name) })),
    );
  } catch (error) {
    throw bad(`${directory}: ${describe(error)}`, error);
  }
}

/**
 * All data below a directory. `seen` has the directories so far, by what they are without links. One that is
 * reached twice is an error: its samples would be trained twice, or the walk would never end.
 */
async function below(directory: string, seen = new Map<string, string>()): Promise<string[]> {
  const real = await realpath(directory).catch((error: unknown) => {
    throw bad(`${directory}: ${describe(error)}`, error);
  });
  const other = seen.get(real);
  if (other !== undefined) throw bad(`${directory}: is the same directory as ${other}, by a link`);
  seen.set(real, directory);
  const files: string[] = [];
  for (const entry of await namesIn(directory, (name) => !HIDDEN.test(name))) {
    const path = join(directory, entry.name);
    if (entry.directory) files.push(...(await below(path, seen)));
    else files.push(path);
  }
  return files;
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
      const fits = (name: string) => match.test(name) && (!HIDDEN.test(name) || HIDDEN.test(part));
      const entries = await namesIn(directory, fits);
      return entries.filter((each) => each.directory !== last).map(({ name }) => join(directory, name));
    });
    found = (await Promise.all(next)).flat();
  }
  const there = await Promise.all(found.map((file) => stat(file).catch(() => undefined)));
  return found.filter((_, index) => there[index]?.isFile());
}
