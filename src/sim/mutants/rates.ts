/** Bugs of learning rates that are set. */
import type { Mutant } from './mutant.js';

export const RATE_MUTANTS: readonly Mutant[] = [
  {
    name: 'rates: two owners disagree, because only a new one takes a rate that was set',
    file: 'shard/tables',
    from: 'differingSettings(before.optimizer, table.optimizer).length === 0',
    to: 'true',
  },
  {
    name: 'rates: an owner takes a learning rate that was set, and no clipping',
    file: 'shard/tables',
    from: 'differingSettings(before.optimizer, table.optimizer).length === 0',
    to: 'before.optimizer.lr === table.optimizer.lr',
  },
  {
    name: 'rates: changed tables are no part of a change of the map',
    file: 'protocol/map-diff',
    from: 'tables.filter((table, i) => table !== before.tables[i])',
    to: 'tables.slice(before.tables.length)',
  },
  {
    name: 'rates: a set is told when it is durable, and not when all owners have it',
    file: 'scheduler/owners-maps',
    from: 'if (epoch < least.epoch)',
    to: 'if (false)',
  },
  {
    name: 'rates: a set is told when all owners have the map of an earlier one',
    file: 'scheduler/owners-maps',
    from: 'this.changes.get(id) ?? this.first',
    to: 'this.first',
  },
  {
    name: 'rates: a set is told although the owner before the newest one may still take pushes',
    file: 'scheduler/owners-maps',
    from: '!init && !restore && !reports.serves(node, id, m, gen)',
    to: 'false',
    scenario: {
      test: 'test/core/scheduler/rates-told.test.ts',
      because: 'a living owner is taken for lost, and commits a push with the old rate before it is fenced',
    },
  },
  {
    name: 'rates: a later scheduler does not know which questions were carried out',
    file: 'scheduler/tables',
    from: 'ledger.touch(ratesKey(from, chunk));',
    to: '',
  },
  {
    name: 'rates: a later scheduler reads no questions that were carried out',
    file: 'scheduler/entries',
    from: 'rateQuestions: questionsOf(chunks, whole)',
    to: 'rateQuestions: new Map()',
  },
  {
    name: 'rates: the old flag of a restarted worker undoes a set',
    file: 'scheduler/tables',
    from: ' && !isOldSetting(known, name, value)',
    to: '',
  },
  {
    name: 'rates: a rate that was set is not written',
    file: 'scheduler/ledger',
    from: "compareLists('table', committed.map.tables, map.tables, changes);",
    to:
      "compareLists('table', committed.map.tables, " +
      'map.tables.map((each, i) => committed.map.tables[i] ?? each), changes);',
  },
];
