/** Bugs of the job's own seconds (rule 50). */
import type { Mutant } from './mutant.js';

export const TIME_MUTANTS: readonly Mutant[] = [
  {
    name: 'time: the scheduler tells no seconds',
    file: 'scheduler/job-time',
    from: 'whole === 0',
    to: 'true',
  },
  {
    name: 'time: shards hear of no second',
    file: 'node/shards',
    from: 'this.during(owner, () => owner.onTime())',
    to: '{}',
  },
  {
    name: 'time: only pushes let rows go',
    file: 'shard/owner',
    from: "const mayGo = this.phase === 'ACTIVE' && this.mayApply;",
    to: 'const mayGo = false;',
  },
  {
    name: 'time: a batch without a push is never made',
    file: 'shard/owner',
    from: '(this.openIds.length === 0 && !this.native.dirty)',
    to: 'this.openIds.length === 0',
  },
  {
    name: 'time: a scheduler that takes over begins at zero',
    file: 'scheduler/job-time',
    from: 'seconds > this.seconds',
    to: 'false',
    scenario: {
      test: 'test/core/scheduler/job-time.test.ts',
      because: 'the end of a schedule waits until it has caught up',
    },
  },
  {
    name: 'time: a process that slept counts the time',
    file: 'scheduler/job-time',
    from: 'now - tickedAt - slept',
    to: 'now - tickedAt',
    scenario: {
      test: 'test/core/scheduler/job-time.test.ts',
      because: 'rows go sooner, and no schedule knows when they should',
    },
  },
  {
    name: 'time: a new owner begins at zero',
    file: 'node/shards',
    from: 'shard.tell(this.host.seconds, 0);',
    to: '',
    scenario: {
      test: 'test/core/node/time.test.ts',
      because: 'a shard that is loaded in a running job hears of the second a moment later',
    },
  },
  {
    name: 'time: a checkpoint is restored into tables with another clock',
    file: 'scheduler/saving/restored',
    from: 'table.policy?.clock === saved.policy?.clock',
    to: 'true',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'no table of a schedule is dropped and comes with another clock',
    },
  },
];
