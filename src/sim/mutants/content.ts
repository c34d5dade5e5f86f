/** Bugs in the content of blocks between nodes, and in its account. */
import type { Mutant } from './mutant.js';

const scenario = {
  test: 'test/core/shared/content-bytes.test.ts',
  because: 'more or less content is under way at once, and all of it comes at some time',
};

export const CONTENT_MUTANTS: readonly Mutant[] = [
  {
    name: 'content: a node that takes nothing gets all that it asks for again',
    file: 'shard/owner',
    from: 'if (!this.host.contentBytes.mayGive(from))',
    to: 'if (false)',
    scenario,
  },
  {
    name: 'content: a full link holds up the content for all nodes',
    file: 'shared/content-bytes',
    from: 'this.given.get(taker) ?? [])',
    to: '[...this.given.values()][0] ?? [])',
    scenario,
  },
  {
    name: 'content: each sink asks for a share of its own',
    file: 'sink/sink',
    from: 'Math.min(chunk, excluded - member.wanted, room)',
    to: 'Math.min(chunk, excluded - member.wanted)',
    scenario,
  },
  {
    name: 'content: what was given counts as taken with the next report',
    file: 'shared/content-bytes',
    from: 'Math.min(given.end, taken + held)',
    to: 'taken',
    scenario,
  },
  {
    name: 'content: what a link holds behind content keeps it in the account',
    file: 'shared/content-bytes',
    from: 'Math.min(given.end, taken + held)',
    to: 'taken + held',
    scenario,
  },
  {
    name: 'content: what another process of a node has not taken counts for the new one',
    file: 'shared/content-bytes',
    from: 'given.end = Math.min(given.end, taken + held)',
    to: 'if (given.end === Number.POSITIVE_INFINITY) given.end = taken + held',
    scenario,
  },
  {
    name: 'content: what a node has taken is kept in the account',
    file: 'shared/content-bytes',
    from: 'all.filter(({ end }) => end > taken)',
    to: 'all',
    scenario,
  },
  {
    name: 'content: what was wanted stays asked for when it is overdue',
    file: 'sink/member-stream',
    from: 'this.countOff(this.underway);',
    to: 'this.underway = 0;',
  },
  {
    name: 'content: a row that is larger than a share is never asked for',
    file: 'shared/content-bytes',
    from: 'Math.max(blocks, asked === 0 ? 1 : 0)',
    to: 'Math.max(blocks, 0)',
    scenario,
  },
  {
    name: 'content: what is overdue is asked for again before other sinks have their turn',
    file: 'sink/sink',
    from: 'isOverdue = true;',
    to: 'this.pump(m);',
    scenario: {
      test: 'test/sim/seeds.test.ts',
      because: 'one schedule in some 6,000 loses a shard for good whose node has others to give',
    },
  },
  {
    name: 'content: the list of blocks is written over the first of them',
    file: 'shard/contents',
    from: 'const at = (own?.at ?? 0) + list.byteLength;',
    to: 'const at = own?.at ?? 0;',
  },
  {
    name: 'content: memory of content is used again while the message waits',
    file: 'shard/contents',
    from: 'own.took(content);',
    to: 'own.drop();',
    scenario: {
      test: 'test/core/shard/contents.test.ts',
      because: 'memory of the simulator is never used again',
    },
  },
];
