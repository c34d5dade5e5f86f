/** Bugs in the scheduler's treatment of silence, and of machines that have vanished. */
import type { Mutant } from './mutant.js';

export const VANISHING_MUTANTS: readonly Mutant[] = [
  {
    name: 'vanished: a stalled sink is given up though others of its group may be gone',
    file: 'scheduler/replacing',
    from: 'this.facts.without(this.membership.silentOnes)',
    to: 'this.facts.view()',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'stalled: a sink is replaced before the others of its group have said that they live',
    file: 'scheduler/replacing',
    from: '[...waits].some(',
    to: '[].some(',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'nodes of a schedule seldom die in the moment in which a sink stalls',
    },
  },
  {
    name: 'stalled: an answer to an earlier question counts',
    file: 'scheduler/inquiries',
    from: 'round === undefined || round === inquiry.round',
    to: 'true',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'nodes of a schedule seldom die in the moment in which a sink stalls',
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
    from: 'this.now - lastHeard(known) >= vanishedMs / 4',
    to: 'true',
    scenario: {
      test: 'test/core/scheduler/vanishing.test.ts',
      because: 'machines of a schedule seldom vanish in just this way',
    },
  },
  {
    name: 'vanished: more are given up than the code restores',
    file: 'scheduler/membership',
    from: 'gone.some((node) => this.facts.isIndispensable(node, silent))',
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
    from: 'const isEmpty = wasDead || !this.facts.holders.has(id);',
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
    scenario: {
      test: 'test/core/placement/placement.test.ts',
      because: 'a sink dies between the cut-over of a move and the moment in which the new owner is complete',
    },
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
  {
    name: 'pulses: a process that sends pulses is given up as silent',
    file: 'scheduler/liveness',
    from: 'if (now - lastHeard(node) > silentMs)\n',
    to: 'if (now - node.heardAt > silentMs)\n',
  },
  {
    name: 'pulses: a process that sends pulses is given up because its connection has closed',
    file: 'scheduler/liveness',
    from: 'Math.max(node.closedAt, node.pulsedAt)',
    to: 'node.closedAt',
  },
  {
    name: 'pulses: one of an older process counts',
    file: 'scheduler/liveness',
    from: 'const node = this.of(id, inc);',
    to: 'const node = this.nodes.get(id);',
    scenario: {
      test: 'test/core/scheduler/pulses.test.ts',
      because: 'pulses of a dead process end soon, so its successor is given up a little later',
    },
  },
  {
    name: 'pulses: one of another job counts',
    file: 'scheduler/membership',
    from: 'if (pulse.job === this.map.job)',
    to: '',
    scenario: { test: 'test/core/scheduler/pulses.test.ts', because: 'schedules have one job at a time' },
  },
  {
    name: 'pulses: who has stopped is never given up',
    file: 'scheduler/liveness',
    from: "? 'stopped' : undefined",
    to: '? undefined : undefined',
    scenario: {
      test: 'test/core/scheduler/pulses.test.ts',
      because: 'in the end everybody turns again, so that the job can complete',
    },
  },
  {
    name: 'pulses: who has stopped is given up as soon as one that is silent',
    file: 'scheduler/liveness',
    from: 'Math.max(silentMs, stoppedMs)',
    to: 'silentMs',
    scenario: {
      test: 'test/core/scheduler/pulses.test.ts',
      because: 'nodes that are given up although they live cost time, and nothing that is promised',
    },
  },
  {
    name: 'pulses: a turn is as young as the pulse that tells of it',
    file: 'scheduler/liveness',
    from: 'Math.max(node.turnedAt, now - ageMs)',
    to: 'now',
    scenario: {
      test: 'test/core/scheduler/pulses.test.ts',
      because: 'in the end everybody turns again, so that the job can complete',
    },
  },
  {
    name: 'pulses: a stalled sink is replaced though its node is only busy',
    file: 'scheduler/replacing',
    from: 'if (this.membership.isOnlyBusy(sink.node, report.forMs ?? 0))',
    to: 'if (false)',
    scenario: {
      test: 'test/core/scheduler/pulses.test.ts',
      because: 'sinks that are built anew cost time, and nothing that is promised',
    },
  },
  {
    name: 'pulses: a stalled sink is never replaced while its node is busy',
    file: 'scheduler/membership',
    from: 'forMs < this.policy.stoppedMs && ',
    to: '',
    scenario: {
      test: 'test/core/scheduler/pulses.test.ts',
      because: 'no node of a schedule is busy for ever',
    },
  },
  {
    name: 'pulses: one late turn makes a node overloaded for ever after',
    file: 'scheduler/liveness',
    from: 'now - node.lateAt > SPELL_MS || turnMs',
    to: 'node.lateFrom < 0 || turnMs',
    scenario: {
      test: 'test/core/scheduler/pulses.test.ts',
      because: 'that a node is overloaded is told, and changes nothing',
    },
  },
];
