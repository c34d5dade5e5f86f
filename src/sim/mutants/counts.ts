/** Bugs in how often a push says that its keys were seen. */
import type { Mutant } from './mutant.js';
import { sentAgain, taken } from './sections.js';

const each = (count: string) => `(table) => void (table.counts &&= table.counts.map((count) => ${count}))`;

export const COUNT_MUTANTS: readonly Mutant[] = [
  { name: 'counts: a key with a count is seen once', ...taken(each('1')) },
  { name: 'counts: a key is seen once more than its count says', ...taken(each('count + 1')) },
  { name: 'counts: a push that is sent again counts again', ...sentAgain(each('count * 2')) },
];
