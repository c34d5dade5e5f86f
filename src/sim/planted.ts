/**
 * Bugs to plant: each breaks one rule of the protocol by a small textual edit on the compiled core.
 * Production code holds no trace of them.
 */

export interface Mutant {
  name: string;
  /** File of the compiled core, without ending. */
  file: string;
  /** Must occur exactly once (or at the n-th place, from 0, of several). */
  from: string;
  to: string;
  place?: number;
  /** No random schedule has shown it so far: this test must fail, and `because` says what it takes. */
  scenario?: { test: string; because: string };
}

/** The compiled text with the bug in it. @throws when the text to edit is not there as often as expected */
export function planted({ name, file, from, to, place }: Mutant, compiled: string): string {
  const parts = compiled.split(from);
  const at = place ?? 0;
  if (place === undefined ? parts.length !== 2 : parts.length <= at + 1)
    throw new Error(`mutant "${name}": its text is ${parts.length - 1} times in ${file}.js`);
  return parts.slice(0, at + 1).join(from) + to + parts.slice(at + 1).join(from);
}

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'take deltas of a fenced generation',
    file: 'sink/sink',
    from: 'if (gen !== member.sgen || gen < member.fence)',
    to: 'if (member.sgen === 0)',
  },
  { name: 'a promise that does not fence', file: 'sink/member-stream', from: 'this.fence = gen;', to: '' },
  {
    name: 'acknowledge before the last sink has it',
    file: 'shard/stream',
    from: 'durable = Math.min(durable, follower.acked)',
    to: 'durable = Math.max(durable, follower.acked)',
  },
  {
    name: 'count a sink only when it has answered its start',
    file: 'shard/stream',
    from: 'durable = Math.min(durable, follower.acked)',
    to: "durable = follower.state === 'started' ? Math.min(durable, follower.acked) : durable",
  },
  {
    name: 'content at any position',
    file: 'sink/sink',
    from: 'message.gen < member.fence || message.seq !== member.applied',
    to: 'message.gen < member.fence',
  },
  {
    name: 'content without a flush',
    file: 'shard/owner',
    from: 'this.flush();\n        const { present',
    to: 'const { present',
  },
  {
    name: 'forget the replay after a reconnect',
    file: 'shard/stream',
    from: 'if (batch.seq > applied)',
    to: 'if (batch.seq < 0)',
  },
  {
    name: 'resume one too late',
    file: 'shard/stream',
    from: 'if (batch.seq > applied)',
    to: 'if (batch.seq > applied + 1)',
  },
  {
    name: 'a resend is never repeated',
    file: 'shard/stream',
    from: 'follower.coveredAttempt = follower.attempt;\n        follower.asking',
    to: 'follower.coveredAttempt = Infinity;\n        follower.asking',
  },
  {
    name: 'resends multiply',
    file: 'shard/stream',
    from: 'if (message.attempt <= follower.coveredAttempt)',
    to: 'if (false)',
    scenario: {
      test: 'test/core/shard/resends.test.ts',
      because:
        'sending again what is there already changes nothing but the memory and the time that it takes',
    },
  },
  {
    name: 'bytes of deltas are never given back',
    file: 'shard/stream',
    from: 'this.addBytes(-batch.delta.byteLength);',
    to: 'this.bufferBytes -= batch.delta.byteLength;',
    scenario: {
      test: 'test/core/shard/delta-bytes.test.ts',
      because: 'a shard with nothing uncommitted goes on whatever fills the account: it is slower, not wrong',
    },
  },
  {
    name: 'a full account stops a shard that has nothing uncommitted',
    file: 'shard/owner',
    from: 'return bufferBytes === 0 || ',
    to: 'return ',
    scenario: {
      test: 'test/core/shard/delta-bytes.test.ts',
      because: 'schedules are too small to fill the account',
    },
  },
  {
    name: 'a sink hears that all is committed before it is',
    file: 'shard/stream',
    from: '...stream, committed: this.committed',
    to: '...stream, committed: this.seq',
  },
  {
    name: 'what breaks an invariant is taken for a bad message',
    file: 'node/node',
    from: 'if (!isRefusal(error))',
    to: 'if (false)',
    scenario: {
      test: 'test/core/node/waiting-messages.test.ts',
      because: 'no invariant breaks in schedules: only a planted exception shows what becomes of it',
    },
  },
  {
    name: 'a question is never repeated',
    file: 'shared/retry',
    from: 'return this.askedAt < this.overdueBefore(now);',
    to: 'return !this.begun && this.askedAt < this.overdueBefore(now);',
  },
  {
    name: 'trim the log too early',
    file: 'sink/member-stream',
    from: 'if (entry.seq > committed)',
    to: 'if (entry.seq > this.applied)',
  },
  {
    name: 'acknowledge a duplicate before its original is committed',
    file: 'shard/owner',
    from: 'if (cseq <= this.stream.committedDedup.last(client))',
    to: 'if (true)',
  },
  { name: 'no contiguity', file: 'shard/owner', from: 'if (cseq > last + 1)', to: 'if (false)' },
  { name: 'no de-duplication', file: 'shard/owner', from: 'if (cseq <= last)', to: 'if (false)' },
  {
    name: 'a new sink starts from now',
    file: 'shard/stream',
    from: 'follower.base = this.committed;',
    to: 'follower.base = this.seq;',
  },
  {
    name: 'a new sink gets no de-duplication table',
    file: 'shard/stream',
    from: 'dedup: fresh ? this.committedDedup.entries() : []',
    to: 'dedup: []',
  },
  {
    name: 'serve before all sinks agreed',
    file: 'shard/stream',
    from: 'if (!complete)\n            return;',
    to: '',
    place: 1,
  },
  {
    name: 'start from the maximum',
    file: 'shard/takeover',
    from: 'Math.min(base, follower.applied)',
    to: 'Math.max(base, follower.applied)',
  },
  {
    name: 'no roll-back',
    file: 'sink/member-stream',
    from: 'takeBack(entry.delta);',
    to: 'void entry;',
  },
  { name: 'accumulators survive', file: 'sink/sink', from: 'this.native.dropAccumulators();', to: '' },
  {
    name: 'roll back into the de-duplication table',
    file: 'sink/member-stream',
    from: 'for (const entry of kept)',
    to: 'for (const entry of this.log)',
  },
  {
    name: 'publish a map before it is durable',
    file: 'scheduler/ledger',
    from: 'this.held.push({ version: this.version, effects: this.gated });',
    to: 'this.effects.push(...this.gated);',
  },
  {
    name: 'a restarted node counts as the one that died',
    file: 'scheduler/liveness',
    from: 'return this.of(id, inc)?.dead === false;',
    to: 'return this.nodes.get(id)?.dead === false;',
  },
  {
    name: 'messages for an older generation reach the new owner',
    file: 'node/node',
    from: 'owner?.gen === message.gen ? owner : undefined',
    to: 'owner',
    scenario: {
      test: 'test/core/shard/generation.test.ts',
      because: 'a shard is back at a node while answers to its former ownership there are still under way',
    },
  },
  {
    name: 'lacking of an older version',
    file: 'sink/sink',
    from: 'message.seq !== member.applied || message.v !== this.group.version',
    to: 'message.seq !== member.applied',
    scenario: {
      test: 'test/core/shard/version.test.ts',
      because: 'a parity hears of a loss, and hears it again after the next one, which gave the blocks back',
    },
  },
  {
    name: 'what waits is kept without its bytes',
    file: 'shared/waiting-list',
    from: 'parts: parts.map((part) => part.slice())',
    to: 'parts',
  },
  {
    name: 'who waits is not served later',
    file: 'node/node',
    from: 'this.serving.add(owner);',
    to: '',
  },
  { name: 'a log without its bytes', file: 'sink/member-stream', from: 'delta: delta.slice()', to: 'delta' },
  {
    name: 'call lost what only an old map has lost',
    file: 'shard/recovery',
    from: 'this.reports.asked(this.host.now);',
    to: 'this.reports.asked(this.host.now); this.confirm();',
  },
  {
    name: 'move: cut over before the mirror is complete',
    file: 'placement/repair',
    from: 'else if (this.view.sinkComplete(mirror.sid) && isHealthy(this.current(), this.pool, this.view))',
    to: 'else',
  },
  {
    name: 'move: the mirror is not followed',
    file: 'shard/owner',
    from: "s.kind === 'P' || s.index === this.member",
    to: "s.kind === 'P'",
  },
  {
    name: 'move: drop the old parity before the new one is complete',
    file: 'placement/repair',
    from: '!this.view.sinkComplete(target.sid) ||',
    to: '',
  },
  {
    name: 'move: what a mirror holds counts as lacking',
    file: 'shard/owner',
    from: 'if (this.stream.usableMirror)',
    to: 'if (false)',
  },
  {
    name: 'move: the new owner keeps the generation',
    file: 'placement/repair',
    from: 'inc: mirror.inc, gen: this.epoch, init: false',
    to: 'inc: mirror.inc, gen: this.data[m].gen, init: false',
  },
  {
    name: 'recover at any position',
    file: 'sink/sink',
    from: 'if (message.v !== this.group.version || message.seq !== member.applied)',
    to: 'if (message.v !== this.group.version)',
    scenario: {
      test: 'test/core/shard/position.test.ts',
      because:
        'two members lack a block, one gets it back and changes it, and late copies of its claim reach ' +
        'two parities at different positions',
    },
  },
  {
    name: 'a new owner forgets how far the shard reached',
    file: 'shard/stream',
    from: 'mergeExtents(this.followers.values())',
    to: '[]',
  },
  {
    name: 'a new owner forgets what it has taken already',
    file: 'shard/stream',
    from: 'this.owner.activated(source.copy(),',
    to: 'this.owner.activated(new Dedup(),',
  },
  {
    name: 'an indispensable node is given up',
    file: 'scheduler/scheduler',
    from: "if (reason !== 'refused' && this.indispensable(node))",
    to: 'if (false)',
  },
  {
    name: 'session: one that has ended leaves no trace',
    file: 'shared/dedup',
    from: 'return this.endedUpTo(client) >= client;',
    to: 'return false;',
  },
  {
    name: 'session: the end is not in the stream',
    file: 'shard/owner',
    from: 'this.openIds.push(...ended);',
    to: '',
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
    name: 'move: the old owner goes on after the cut-over',
    file: 'node/node',
    from: 'this.dropOwner(key, owner);',
    to: '{}',
  },
  {
    name: 'move: a loss does not cancel it',
    file: 'placement/repair',
    from: 'this.cancelMovesThatBlockRepair();',
    to: '',
    scenario: {
      test: 'test/core/placement/placement.test.ts',
      because: 'no node is free for long: here every one comes back, and gives the room that the move took',
    },
  },
  {
    name: 'move: the mirror goes before the new owner has everything',
    file: 'placement/repair',
    from: 'if (this.view.shardComplete(this.group.id, m, entry.gen))',
    to: 'if (true)',
  },
  {
    name: 'move: an incomplete mirror is promoted at a loss',
    file: 'placement/repair',
    from: 'if (mirror && this.view.sinkComplete(mirror.sid))',
    to: 'if (mirror)',
  },
  {
    name: 'move: the coefficients of the parity that is copied',
    file: 'node/node',
    from: 'this.native.createSink(this.memory, group.data.length, r, entry.index, entry.init)',
    to: 'this.native.createSink(this.memory, group.data.length, r, entry.init ? entry.index : 0, entry.init)',
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
    file: 'scheduler/scheduler',
    from: 'this.liveness.newest(id)?.dead !== false &&',
    to: '',
    scenario: {
      test: 'test/core/scheduler/names.test.ts',
      because: 'a schedule has fewer nodes than are remembered',
    },
  },
  {
    name: 'capability: a push does not wait for the target of a move',
    file: 'shard/stream',
    from: 'if (follower.entry.acknowledges)',
    to: 'if (follower.entry.acknowledges && follower.entry.movesMember === undefined)',
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
  {
    name: 'capability: a shard is decoded by the target of a move',
    file: 'shard/stream',
    from: 'if (movesMember === undefined || !byIndex.has(index))',
    to: 'if (true)',
  },
];
