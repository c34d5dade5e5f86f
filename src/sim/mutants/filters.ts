/** Bugs of filters in checkpoints. */
import type { Mutant } from './mutant.js';

export const FILTER_MUTANTS: readonly Mutant[] = [
  {
    name: 'filter: a checkpoint has no counters',
    file: 'node/saving',
    from: 'saved.filter.counters.push(filter.counters);',
    to: 'saved.filter.counters.push(filter.counters.map(() => 0));',
    scenario: {
      test: 'test/library/client/policy.test.ts',
      because: 'few schedules are restored while keys of a filter wait',
    },
  },
  {
    name: 'filter: a restore takes no counters',
    file: 'node/loaded-filters',
    from: 'native.loadFilter(own.table, slots, counters, 0)',
    to: '0',
    scenario: {
      test: 'test/engine/filters.test.ts',
      because: 'few schedules are restored while keys of a filter wait',
    },
  },
  {
    name: 'filter: counters are added twice',
    file: 'node/loaded-filters',
    from: 'native.loadFilter(own.table, NO_SLOTS, NO_COUNTERS, 0)',
    to: 'native.loadFilter(own.table, slots, taken.find((each) => each.own === own).counters, 0)',
    scenario: {
      test: 'test/engine/filters.test.ts',
      because: 'few schedules are restored while keys of a filter wait',
    },
  },
  {
    name: 'filter: a shard has the counters of its first source only',
    file: 'node/loaded-filters',
    from: 'if (!newest || ',
    to: 'if (source !== this.sources[0] || !newest || ',
    scenario: {
      test: 'test/engine/filters.test.ts',
      because: 'few schedules are restored into other shards while keys of a filter wait',
    },
  },
  {
    name: 'filter: what one table has added is added again when another one finds no memory',
    file: 'node/loaded-filters',
    from: 'slots.length > 0 ? native.loadFilter(own.table, NO_SLOTS, NO_COUNTERS, 0) : 0',
    to: '0',
    scenario: {
      test: 'test/engine/filters.test.ts',
      because: 'a schedule has enough memory for filters',
    },
  },
  {
    name: 'filter: a restored one forgets as a new one',
    file: 'node/loaded-filters',
    from: 'isSame ? states[0].waiting : this.waitingOf(own, states)',
    to: '0',
    scenario: {
      test: 'test/engine/filters.test.ts',
      because: 'filters of a schedule are so large that they forget nothing',
    },
  },
  {
    name: 'filter: older checkpoints of a chain add to the newest one',
    file: 'node/loaded-filters',
    from: 'checkpointOfSegment(newest.name) !== checkpointOfSegment(segment.name)',
    to: 'false',
    scenario: {
      test: 'test/engine/filters.test.ts',
      because: 'every checkpoint of a shard whose tables have a policy has all rows',
    },
  },
  {
    name: 'filter: every shard takes its slots for those of the first one',
    file: 'shard/tables',
    from: 'policyOfShard(policy, k * groups), shard)',
    to: 'policyOfShard(policy, k * groups), 0)',
    scenario: {
      test: 'test/library/client/policy.test.ts',
      because: 'few schedules are restored into other shards while keys of a filter wait',
    },
  },
];
