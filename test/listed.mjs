// The files that lint looks at: all that are, or are about to be, under version control.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..');

/** Paths from the root, of everything or of these folders. */
export function listedFiles(...folders) {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...folders];
  return execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', maxBuffer: 1 << 26 })
    .split('\n')
    .filter((file) => file !== '' && existsSync(join(ROOT, file)));
}

export const textOf = (file) => readFileSync(join(ROOT, file), 'utf8');
