/** Bugs of rows that go by themselves, outside of the engine. */
import type { Mutant } from './mutant.js';

export const LIFE_MUTANTS: readonly Mutant[] = [
  {
    name: 'life: increments do not say which keys are gone',
    file: 'node/saving',
    from: 'saved.removed = [...(saved.removed ?? []), removed];',
    to: '{}',
    scenario: {
      test: 'test/library/serving/gone.test.ts',
      because: 'few jobs are restored from an increment that removes a row',
    },
  },
  {
    name: 'life: a restore keeps rows that an increment removes',
    file: 'node/loading',
    from: 'if (table.removed && ',
    to: 'if (false && ',
    scenario: {
      test: 'test/core/node/loading.test.ts',
      because: 'few jobs are restored from an increment that removes a row',
    },
  },
  {
    name: 'life: an export with other thresholds adds to files of the old ones',
    file: 'scheduler/saving/saver',
    from: '!addsTo(plan, known)',
    to: 'plan.url !== known.url',
    scenario: {
      test: 'test/library/serving/gone.test.ts',
      because: 'a schedule has no exports',
    },
  },
  {
    name: 'life: a replica serves rows of any frequency and age',
    file: 'replica/shard',
    from: 'native.serve(minFrequency, maxAge, maxAgeSeconds);',
    to: 'native.serve(0, 0, 0);',
  },
  {
    name: 'life: a replica serves rows that are not admitted',
    file: 'replica/shard',
    from: 'native.serve(minFrequency, maxAge, maxAgeSeconds);',
    to: 'if (minFrequency + maxAge + maxAgeSeconds > 0) native.serve(minFrequency, maxAge, maxAgeSeconds);',
  },
  {
    name: 'life: a replica does not know the size of a filter',
    file: 'replica/replica',
    from: 'filtered(table, k * groups)',
    to: 'table',
  },
  {
    name: 'life: keys are listed while rows that say who is gone are lost',
    file: 'node/queries',
    from: 'if (!owner.native.tableReady(table))',
    to: 'if (false)',
    scenario: {
      test: 'test/core/node/queries.test.ts',
      because: 'a client lists keys while blocks of rows are decoded, and one of the rows is gone',
    },
  },
  {
    name: 'life: a shard keeps the rows of all shards',
    file: 'shard/tables',
    from: 'policyOfShard(policy, k * groups)',
    to: 'policy',
  },
  {
    name: 'life: a shard keeps its part of the rows of one group',
    file: 'shard/tables',
    from: 'policyOfShard(policy, k * groups)',
    to: 'policyOfShard(policy, k)',
  },
  {
    name: 'life: a checkpoint is restored into tables whose rows have other words',
    file: 'scheduler/saving/restored',
    from: '(table.policy === undefined) === (saved.policy === undefined) &&',
    to: '',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'no table of a schedule is dropped and comes without its policy',
    },
  },
  {
    name: 'life: a filter may be larger than the memory of a PS',
    file: 'scheduler/tables',
    from: 'if (bytes <= limit)',
    to: 'if (true)',
    scenario: {
      test: 'test/core/scheduler/policies.test.ts',
      because: 'the nodes of a schedule have no budget',
    },
  },
];
