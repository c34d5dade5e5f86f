/** Bugs in the scores that a push brings. */
import type { Mutant } from './mutant.js';
import { sentAgain, taken } from './sections.js';

const each = (score: string) => `(table) => void (table.scores &&= table.scores.map((score, i) => ${score}))`;

/** The score of each key of the shard's tables that was pushed, whatever has become of its row. */
const KNOWN = 'const known = (this.known ??= new Map());';
const known = (score: string) =>
  `(table) => { ${KNOWN} const nameOf = (i) => table.number + ' ' + table.keys[i];
    (${each(`(known.set(nameOf(i), ${score}), known.get(nameOf(i)))`)})(table); }`;

/** Pushes to a table with scores that bring none bring those of `score`. */
const missing = (score: string) =>
  `(table) => { ${KNOWN} const nameOf = (i) => table.number + ' ' + table.keys[i];
    if (table.scores) known.set(table.number, true);
    table.scores?.forEach((score, i) => known.set(nameOf(i), score));
    if (table.scores || !table.width || !known.has(table.number)) return;
    table.scores = Float32Array.from(table.keys, (_, i) => ${score}); }`;

export const SCORE_MUTANTS: readonly Mutant[] = [
  { name: 'scores: a row has no score', ...taken(each('0')) },
  { name: 'scores: the higher a score, the sooner its row goes', ...taken(each('-score')) },
  {
    name: 'scores: a row never gets a lower score',
    ...taken(known('Math.max(score, known.get(nameOf(i)) ?? score)')),
  },
  { name: 'scores: scores are added up', ...taken(known('score + (known.get(nameOf(i)) ?? 0)')) },
  { name: 'scores: a push without scores takes them away', ...taken(missing('0')) },
  {
    name: 'scores: a key that comes back has the score of its row that went',
    ...taken(missing('known.get(nameOf(i)) ?? 0')),
  },
  {
    name: 'scores: a checkpoint with scores is restored into a table without',
    file: 'scheduler/saving/restored',
    from: 'table.policy?.score === saved.policy?.score',
    to: 'true',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'no table of a schedule is dropped and comes without its scores',
    },
  },
  { name: 'scores: a push that is sent again has other scores', ...sentAgain(each('score + 1')) },
];
