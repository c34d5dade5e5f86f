/** Bugs in streams, sinks, recovery, requests and their limits. */
import type { Mutant } from './mutant.js';

export const STREAM_MUTANTS: readonly Mutant[] = [
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
    name: 'a shard that was refused memory begins again in the same generation',
    file: 'node/refused',
    from: 'return gen !== undefined;',
    to: 'return false;',
    scenario: {
      test: 'test/core/shard/memory.test.ts',
      because: 'a group seldom changes between the refusal and the next generation',
    },
  },
  {
    name: 'a refused shard leaves the node of its mirror',
    file: 'scheduler/replacing',
    from: 'const nowhere = stays ? {} : { node: 0, inc: 0 };',
    to: 'const nowhere = { node: 0, inc: 0 };',
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
    name: 'session: a push that comes after the end is taken',
    file: 'shard/owner',
    from: 'if (last === 0 && this.head.hasEnded(client))',
    to: 'if (false)',
  },
  {
    name: 'session: ended ranges that join forget the older ones',
    file: 'shared/dedup',
    from: 'Math.min(first, joined[0]?.[0] ?? first)',
    to: 'first',
    scenario: {
      test: 'test/core/scheduler/sessions.test.ts',
      because: 'ranges between open sessions only grow, so none is narrower than one that was recorded',
    },
  },
  {
    name: 'session: ended ranges that join are kept side by side',
    file: 'shared/dedup',
    from: ' || this.touching(first, last)[1] > 1',
    to: '',
    scenario: {
      test: 'test/core/scheduler/sessions.test.ts',
      because: 'a table that grows is larger, not wrong',
    },
  },
  {
    name: 'session: nodes do not ask for what they were not told',
    file: 'node/node',
    from: "this.out.send(SCHEDULER, { t: 'sessions' });",
    to: '',
  },
  {
    name: 'capability: a push does not wait for the target of a move',
    file: 'shard/stream',
    from: 'if (follower.entry.acknowledges)',
    to: 'if (follower.entry.acknowledges && follower.entry.movesMember === undefined)',
  },
  {
    name: 'capability: a shard is decoded by the target of a move',
    file: 'shard/stream',
    from: 'if (movesMember === undefined || !byIndex.has(index))',
    to: 'if (true)',
  },
  {
    name: 'a sink that the system refused memory is created again, empty',
    file: 'node/sinks',
    from: 'this.failed.set(sid, group);',
    to: '',
    scenario: {
      test: 'test/core/sink/memory.test.ts',
      because: 'the system gives the simulator all the memory that it asks for',
    },
  },
];
