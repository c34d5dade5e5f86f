// Part of `npm run lint`: a comment names its subject. One that opens with "Of", "What" or "It" leaves the
// reader to guess who or what it speaks of, so it is refused. `node test/comments.mjs src/core` checks one
// folder.
import { fileURLToPath } from 'node:url';
import { listedFiles, textOf } from './listed.mjs';

const CODE = /\.(ts|mjs|js|cc|h|py)$/;
/** Files written by others. */
const FOREIGN = /^src\/fleet\/dashboard\/page\/vendor\//;
/** Words that stand for a subject which the comment does not name. */
const OPENING = /^(Of|What|It|Its|Nothing|Who|Whoever|Others|Those|They|Likewise)\b/;
/** "One push" has a subject, and "One that" has none. */
const ONE = /^One (that|which|who|whose|of|is|was|has|had|may|can|must|at|after|before|for|in|with)\b/;
/** Comments that open with one of these words and name their subject all the same: whole first lines. */
const EXCEPTIONS = new Set([]);

/** The first line of every comment of the text, with its line number from 1. */
export function openings(file, text) {
  const lines = text.split('\n');
  const marker = file.endsWith('.py') ? /^\s*(#+|""")\s*(.*)$/ : /^\s*(\/\*\*?|\/\/+)\s*(.*)$/;
  const found = [];
  lines.forEach((line, index) => {
    const match = marker.exec(line);
    if (!match) return;
    const [, mark, rest] = match;
    const before = lines[index - 1]?.trimStart() ?? '';
    if (/^(\/\/|#)/.test(mark) && before.startsWith(mark)) return;
    if (rest !== '') found.push([index + 1, rest]);
    else {
      const next = lines[index + 1]?.replace(/^\s*(\*|\/\/|#)?\s*/, '') ?? '';
      if (next !== '') found.push([index + 2, next]);
    }
  });
  return found;
}

/** `file:line: opening` of every comment without a subject. */
export function withoutSubject(file, text) {
  return openings(file, text)
    .filter(([, opening]) => (OPENING.test(opening) || ONE.test(opening)) && !EXCEPTIONS.has(opening))
    .map(([line, opening]) => `${file}:${line}: ${opening}`);
}

/** Comments without a subject in all files that are, or are about to be, under version control. */
export function allWithoutSubject(...folders) {
  return listedFiles(...folders)
    .filter((file) => CODE.test(file) && !FOREIGN.test(file))
    .flatMap((file) => withoutSubject(file, textOf(file)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = allWithoutSubject(...process.argv.slice(2));
  for (const line of found) console.error(line);
  if (found.length > 0) {
    console.error(`${found.length} comments open without a subject: say who or what, then the fact`);
    process.exit(1);
  }
}
