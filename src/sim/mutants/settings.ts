/** Bugs of settings that are set. */
import type { Mutant } from './mutant.js';

export const SETTING_MUTANTS: readonly Mutant[] = [
  {
    name: 'settings: two owners disagree, because only a new one takes a setting that was set',
    file: 'shard/tables',
    from: 'isSetAlike(before, table)',
    to: 'true',
  },
  {
    name: 'settings: those of a table that was dropped go to another one with its name',
    file: 'scheduler/tables',
    from: 'question.table !== table.id',
    to: 'false',
    scenario: {
      test: 'test/core/scheduler/settings.test.ts',
      because: 'no schedule makes a table of the name of one that it dropped while somebody sets it',
    },
  },
  {
    name: 'settings: an owner takes a learning rate that was set, and no clipping',
    file: 'shard/tables',
    from: 'isSetAlike(before, table)',
    to: 'before.optimizer.lr === table.optimizer.lr',
  },
  {
    name: 'settings: an owner takes what was set of the optimizer, and no policy',
    file: 'shard/tables',
    from: 'isSetAlike(before, table)',
    to: 'JSON.stringify(before.optimizer) === JSON.stringify(table.optimizer)',
  },
  {
    name: 'settings: a new owner goes by the policy of the creation',
    file: 'shard/tables',
    from: 'const { policy } = table;',
    to: 'const policy = before ? table.policy : (table.earlierPolicies?.[0] ?? table.policy);',
    scenario: {
      test: 'test/library/client/set-policy.test.ts',
      because: 'few new owners have a row whose age only the first policy allows',
    },
  },
  {
    name: 'settings: a restarted worker is refused with the policy that its table had at first',
    file: 'scheduler/tables',
    from: 'hadPolicy(known, wanted.policy)',
    to: 'false',
  },
  {
    name: 'settings: changed tables are no part of a change of the map',
    file: 'protocol/map-diff',
    from: 'tables.filter((table, i) => table !== before.tables[i])',
    to: 'tables.slice(before.tables.length)',
  },
  {
    name: 'settings: a set is told when it is durable, and not when all owners have it',
    file: 'scheduler/owners-maps',
    from: 'if (epoch < least.epoch)',
    to: 'if (false)',
  },
  {
    name: 'settings: a set is told when all owners have the map of an earlier one',
    file: 'scheduler/owners-maps',
    from: 'this.changes.get(id) ?? this.first',
    to: 'this.first',
  },
  {
    name: 'settings: a set is told although the owner before the newest one may still take pushes',
    file: 'scheduler/owners-maps',
    from: '!init && !restore && !reports.serves(node, id, m, gen)',
    to: 'false',
    scenario: {
      test: 'test/core/scheduler/settings-told.test.ts',
      because:
        'a living owner is taken for lost, and commits a push with the old setting before it is fenced',
    },
  },
  {
    name: 'settings: a later scheduler does not know which questions were carried out',
    file: 'scheduler/tables',
    from: 'ledger.touch(questionsKey(from, chunk));',
    to: '',
  },
  {
    name: 'settings: a later scheduler reads no questions that were carried out',
    file: 'scheduler/entries',
    from: 'settingQuestions: questionsOf(chunks, whole)',
    to: 'settingQuestions: new Map()',
  },
  {
    name: 'settings: the old flag of a restarted worker undoes a set',
    file: 'scheduler/tables',
    from: ' && !isOldSetting(known, name, value)',
    to: '',
  },
  {
    name: 'settings: a setting that was set is not written',
    file: 'scheduler/ledger',
    from: "compareLists('table', committed.map.tables, map.tables, changes);",
    to:
      "compareLists('table', committed.map.tables, " +
      'map.tables.map((each, i) => committed.map.tables[i] ?? each), changes);',
  },
];
