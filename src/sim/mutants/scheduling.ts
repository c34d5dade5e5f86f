/** Bugs in what the scheduler knows, decides and makes durable. */
import type { Mutant } from './mutant.js';

export const SCHEDULER_MUTANTS: readonly Mutant[] = [
  {
    name: 'publish a map before it is durable',
    file: 'scheduler/ledger',
    from: '(last?.effects ?? this.effects).push(...this.gated);',
    to: 'this.effects.push(...this.gated);',
  },
  {
    name: 'store: what is decided during a write is told with it',
    file: 'scheduler/ledger',
    from: 'const last = this.next ?? this.writing;',
    to: 'const last = this.writing ?? this.next;',
  },
  {
    name: 'store: what is decided during a write is never written',
    file: 'scheduler/ledger',
    from: 'for (const [key, value] of changes)\n                this.next.changes.set(key, value);',
    to: 'if (!this.writing)\n                this.next.changes = changes;',
  },
  {
    name: 'store: a group is not written',
    file: 'scheduler/ledger',
    from: "compareLists('group', committed.map.groups, map.groups, changes);",
    to: '',
  },
  {
    name: 'store: a session is not written',
    file: 'scheduler/ledger',
    from: 'this.state.sessions.set(id, { id, leased });\n        this.touch(sessionKey(id));',
    to: 'this.state.sessions.set(id, { id, leased });',
  },
  {
    name: 'store: the end of a session is not written',
    file: 'scheduler/ledger',
    from: 'if (this.state.sessions.delete(id))\n            this.touch(sessionKey(id));',
    to: 'this.state.sessions.delete(id);',
  },
  {
    name: 'store: the identity of a node is not written',
    file: 'scheduler/names',
    from: 'this.ledger.touch(nameKey(join.name));',
    to: 'this.ledger.touch(nameKey(""));',
  },
  {
    name: 'store: a lease is not written',
    file: 'scheduler/samples/samples',
    from: 'this.touchRange(live, range.number);\n            this.tell',
    to: 'this.tell',
  },
  {
    name: 'store: counters are not written',
    file: 'scheduler/ledger',
    from: 'touched.add(HEAD_KEY);',
    to: '',
  },
  {
    name: 'a restarted node counts as the one that died',
    file: 'scheduler/liveness',
    from: 'return this.of(id, inc)?.dead === false;',
    to: 'return this.nodes.get(id)?.dead === false;',
  },
  {
    name: 'an indispensable node is given up',
    file: 'scheduler/membership',
    from: "if (reason !== 'refused' && this.host.indispensable(node))",
    to: 'if (false)',
  },
  {
    name: 'session: who is connected is sent away, too',
    file: 'scheduler/sessions',
    from: 'if (lease.link !== undefined)',
    to: 'if (false)',
  },
  {
    name: 'session: an end is told before it is durable',
    file: 'scheduler/scheduler',
    from: 'return this.ledger.answer(from, this.sessions.answer());',
    to: "return this.ledger.now({ kind: 'send', to: from, message: this.sessions.answer(), parts: [] });",
  },
  {
    name: 'a sink that has stalled is given up though it is needed',
    file: 'scheduler/scheduler',
    from: 'return this.reports.isLost(group) || canDoWithout(group, sink, ',
    to: 'return true || canDoWithout(group, sink, ',
  },
  {
    name: 'change: a node leaves before it is empty',
    file: 'scheduler/scaling/scaler',
    from: 'if (change.leaving.some(({ node, inc }) => holds(node, inc)))',
    to: 'if (false)',
  },
  {
    name: 'change: a node is told to leave before that is durable',
    file: 'scheduler/scaling/scaler',
    from: "this.host.ledger.answer(node, { t: 'leave', inc });",
    to: "this.host.ledger.now({ kind: 'send', to: node, message: { t: 'leave', inc }, parts: [] });",
  },
  {
    name: 'change: a mirror in use is taken back',
    file: 'scheduler/scaling/moving',
    from: 'sink.movesMember === undefined || !which(group, sink)',
    to: "(sink.kind === 'P' && sink.movesMember === undefined) || !which(group, sink)",
  },
  {
    name: 'change: a parity in use is taken back',
    file: 'scheduler/scaling/moving',
    from: 'sink.movesMember === undefined || !which(group, sink)',
    to: "(sink.kind === 'M' && sink.movesMember === undefined) || !which(group, sink)",
  },
  {
    name: 'change: a plan outlives what it was made for',
    file: 'placement/agenda',
    from: 'key !== this.key',
    to: "this.key === ''",
  },
  {
    name: 'report: a node speaks for a sink of another one',
    file: 'scheduler/reports',
    from: 'sink?.node !== from || sink.inc !== inc ||',
    to: '',
    scenario: {
      test: 'test/core/scheduler/reports.test.ts',
      because: 'every node of a schedule is honest',
    },
  },
  {
    name: 'report: anybody may say that a shard is lost',
    file: 'scheduler/reports',
    from: 'entry?.node !== from || entry.gen !== gen',
    to: 'false',
    scenario: {
      test: 'test/core/scheduler/reports.test.ts',
      because: 'every node of a schedule is honest',
    },
  },
  {
    name: 'status: the condition of the job is not computed again when something happens',
    file: 'scheduler/scheduler',
    from: 'this.computed = undefined;',
    to: '',
  },
  {
    name: 'names: a node that lives is forgotten',
    file: 'scheduler/membership',
    from: 'this.liveness.newest(id)?.dead !== false &&',
    to: '',
    scenario: {
      test: 'test/core/scheduler/names.test.ts',
      because: 'a schedule has fewer nodes than are remembered',
    },
  },
  {
    name: 'capability: the mirror of a move counts as redundancy',
    file: 'placement/moves',
    from: '...CAPABILITIES[kind]',
    to: '...CAPABILITIES.P',
  },
  {
    name: 'capability: a mirror stays the target of its move when it is promoted',
    file: 'placement/repair',
    from: 'sink === mirror ? settled(sink) : sink',
    to: 'sink',
  },
  {
    name: 'capability: a parity stays the target of its move when the older one goes',
    file: 'placement/repair',
    from: 'return settled(sink);',
    to: 'return sink;',
  },
  {
    name: 'capability: every new parity is the target of a move',
    file: 'placement/repair',
    from: '...(moves && ',
    to: '...(true && ',
  },
];
