/** The files of the project, as tests of its structure read them. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { PACKAGE_ROOT as ROOT } from '../src/common/package-root.js';

export { PACKAGE_ROOT as ROOT } from '../src/common/package-root.js';

/** Paths of the files from the root, sorted. */
export function filesUnder(folder: string, ends: RegExp): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && ends.test(entry.name))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)))
    .sort();
}

/** Paths of files that match these patterns of git, and are, or are about to be, under version control. */
export function listedFiles(...patterns: string[]): string[] {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...patterns];
  const listed = execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).split('\n');
  return listed.filter((file) => file !== '' && existsSync(join(ROOT, file)));
}

export const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

/** The file that `specifier` names in an import of `file`, both by path from the root. */
export function importedFile(file: string, specifier: string): string {
  return join(dirname(file), specifier).replace(/\.js$/, '.ts');
}
