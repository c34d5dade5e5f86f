/** Bugs of purges: a byte of what is to be forgotten stays, or rows of others are lost. */
import type { Mutant } from './mutant.js';

const scenario = {
  test: 'test/stores/checkpoint/purge.test.ts',
  because: 'a schedule has no other writer than the job',
};

export const PURGE_MUTANTS: readonly Mutant[] = [
  {
    name: 'purge: files that no checkpoint lists stay',
    file: 'stores/checkpoint/retention',
    from: 'await place.remove(orphans.map(([name]) => name));',
    to: '',
    scenario,
  },
  {
    name: 'purge: files of failed attempts with higher numbers stay',
    file: 'stores/checkpoint/purge',
    from: 'above = Math.max(above, checkpointOfSegment(name));',
    to: '{}',
    scenario,
  },
  {
    name: 'purge: a file that every row of a shard is in stays as it is',
    file: 'stores/checkpoint/compact',
    from: '!(await this.hasForgotten(shard))',
    to: 'true',
    scenario,
  },
  {
    name: 'purge: rows of forgotten keys are written again',
    file: 'stores/checkpoint/live-rows',
    from: '!forgotten?.has(low, high)',
    to: 'true',
    scenario,
  },
  {
    name: 'purge: others go although the newest one may be taken back',
    file: 'stores/checkpoint/retention',
    from: 'newest !== number || numbers.at(-1) !== number',
    to: 'false',
    scenario,
  },
  {
    name: 'purge: a compaction stands before a checkpoint with newer rows',
    file: 'stores/checkpoint/checkpoints',
    from: 'parents.length > 0 || compactionOf !== undefined',
    to: 'parents.length > 0',
    scenario,
  },
  {
    name: 'purge: a job hears of missing files and not that its number is taken',
    file: 'stores/checkpoint/checkpoints',
    from: 'isPublished || !listing.numbers.includes(draft.number)',
    to: 'true',
    scenario,
  },
];
