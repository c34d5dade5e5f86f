// Part of `npm run lint`: no line of code, comment or Markdown goes beyond 110 columns. Tables in Markdown
// and lines that hold nothing but an address are left out, because they cannot be broken.
import { fileURLToPath } from 'node:url';
import { listedFiles, textOf } from './listed.mjs';

export const MAX_COLUMNS = 110;
const TEXT = /\.(ts|mjs|js|css|html|cc|h|md|json|yml|sh)$|^\.ci\/run$/;
/** Files written by programs, or by others. */
const GENERATED = /(^|\/)package-lock\.json$|^deploy\/grafana\.json$|^src\/fleet\/dashboard\/page\/vendor\//;

/** `file:line: columns` of every line that is too long. */
export function longLines(file, text) {
  return text.split('\n').flatMap((line, index) => {
    const columns = [...line].length;
    const excepted =
      (file.endsWith('.md') && line.trimStart().startsWith('|')) || /^\W*https?:\/\/\S+$/.test(line);
    return columns > MAX_COLUMNS && !excepted ? [`${file}:${index + 1}: ${columns} columns`] : [];
  });
}

/** Lines that are too long in all files that are, or are about to be, under version control. */
export function allLongLines() {
  return listedFiles()
    .filter((file) => TEXT.test(file) && !GENERATED.test(file))
    .flatMap((file) => longLines(file, textOf(file)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = allLongLines();
  for (const line of found) console.error(`${line}, at most ${MAX_COLUMNS} are allowed`);
  process.exit(found.length > 0 ? 1 : 0);
}
