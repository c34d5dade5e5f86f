/** Bugs in what the scheduler makes of silence, and of machines that have vanished. */
import type { Mutant } from './mutant.js';

export const VANISHING_MUTANTS: readonly Mutant[] = [
  {
    name: 'vanished: a stalled sink is given up though others of its group may be gone',
    file: 'scheduler/scheduler',
    from: 'this.without(this.membership.silentOnes)',
    to: 'this.view()',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: "vanished: one node's word suffices",
    file: 'scheduler/vanishing',
    from: 'links.every((silentMs)',
    to: 'links.some((silentMs)',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'vanished: hardly anybody needs to answer',
    file: 'scheduler/vanishing',
    from: '2 * fresh.length <= able.length',
    to: 'false',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'vanished: what was said long ago counts',
    file: 'scheduler/vanishing',
    from: 'now - answer.at <= vanishedMs * FRESH_FOR',
    to: 'true',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'vanished: the own link is silent for half the time only',
    file: 'scheduler/vanishing',
    from: 'const { vanishedMs } = this.policy;',
    to: 'const vanishedMs = this.policy.vanishedMs / 2;',
    place: 0,
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'vanished: a process that still sends is given up',
    file: 'scheduler/membership',
    from: 'this.now - known.heardAt >= vanishedMs / 4',
    to: 'true',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'vanished: more are given up than the code restores',
    file: 'scheduler/membership',
    from: 'gone.some((node) => this.host.indispensable(node, silent))',
    to: 'false',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'silence counts while the scheduler hears nobody',
    file: 'scheduler/membership',
    from: 'this.liveness.excuse(now);',
    to: '',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'nodes that are given up although they live cost time, and nothing that is promised',
    },
  },
  {
    name: 'vanished: who comes back stays empty',
    file: 'scheduler/membership',
    from: 'const isEmpty = wasDead || !scaler.holders.has(id);',
    to: 'const isEmpty = false;',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'a shard that is being handed over counts as missing',
    file: 'placement/health',
    from: ' || isMirrored(group, m, view)',
    to: '',
    place: 0,
  },
  {
    name: 'a mirror that lacks something counts as the shard',
    file: 'placement/health',
    from: ' && view.sinkComplete(mirror.sid)',
    to: '',
    scenario: {
      test: 'test/core/placement/placement.test.ts',
      because: 'a mirror is promoted when it has everything, and seldom lacks something again',
    },
  },
];
