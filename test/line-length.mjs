// Part of `npm run lint`: no line of code, comment or Markdown goes beyond 110 columns. Tables in Markdown
// and lines that hold nothing but an address are left out, because they cannot be broken.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const MAX_COLUMNS = 110;
const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const TEXT = /\.(ts|mjs|js|css|html|cc|h|md|json|yml|sh)$|^\.ci\/run$/;
/** Written by programs, or by others. */
const GENERATED = /(^|\/)package-lock\.json$|^deploy\/grafana\.json$|^src\/dashboard\/page\/vendor\//;

/** `file:line: columns` of every line that is too long. */
export function longLines(file, text) {
  return text.split('\n').flatMap((line, index) => {
    const columns = [...line].length;
    const excepted =
      (file.endsWith('.md') && line.trimStart().startsWith('|')) || /^\W*https?:\/\/\S+$/.test(line);
    return columns > MAX_COLUMNS && !excepted ? [`${file}:${index + 1}: ${columns} columns`] : [];
  });
}

/** Of all files that are, or are about to be, under version control. */
export function allLongLines() {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard'];
  return execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' })
    .split('\n')
    .filter((file) => TEXT.test(file) && !GENERATED.test(file))
    .filter((file) => existsSync(join(ROOT, file)))
    .flatMap((file) => longLines(file, readFileSync(join(ROOT, file), 'utf8')));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = allLongLines();
  for (const line of found) console.error(`${line}, at most ${MAX_COLUMNS} are allowed`);
  process.exit(found.length > 0 ? 1 : 0);
}
