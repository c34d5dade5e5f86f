/** Bugs of checkpoints. */
import type { Mutant } from './mutant.js';

export const SAVING_MUTANTS: readonly Mutant[] = [
  {
    name: 'checkpoint: a shard is called saved before its files are stored',
    file: 'node/saving',
    from: 'read && open === 0 && snapshot.isCommitted',
    to: 'read && snapshot.isCommitted',
  },
  {
    name: 'checkpoint: the manifest is written before all shards are saved',
    file: 'scheduler/saving/saver',
    from: 'if (attempt.isComplete(this.ledger.map))',
    to: 'if (attempt.savedShards > 1)',
  },
  {
    name: 'checkpoint: the de-duplication state is that of the committed position',
    file: 'shard/owner',
    from: 'this.stream.seq, this.head.entries(), since',
    to: 'this.stream.seq, this.stream.committedDedup.entries(), since',
  },
  {
    name: 'checkpoint: the session of a range ends while shards are saved',
    file: 'scheduler/ledger',
    from: 'if (this.held && ',
    to: 'if (false && ',
  },
  {
    name: 'checkpoint: what was held is not ended after a crash of the scheduler',
    file: 'scheduler/samples/samples',
    from: 'of orphans(ledger.state)',
    to: 'of []',
  },
  {
    name: 'checkpoint: a new owner is asked for what changed since a snapshot of the old one',
    file: 'scheduler/saving/chains',
    from: 'chain?.gen !== gen || ',
    to: '!chain || ',
    scenario: {
      test: 'test/core/scheduler/saving.test.ts',
      because: 'the engine answers a stamp that it has not given with all rows: it takes failures in between',
    },
  },
  {
    name: 'checkpoint: a snapshot counts whose position can be rolled back',
    file: 'shard/snapshot',
    from: 'return this.owner.stream.committed >= this.position;',
    to: 'return true;',
  },
  {
    name: 'checkpoint: ranges that were handed out meanwhile are left out',
    file: 'scheduler/samples/samples',
    from: 'this.cut?.handedOut(index, range);',
    to: '',
  },
  {
    name: 'checkpoint: ranges that were finished meanwhile count as finished',
    file: 'scheduler/samples/cut',
    from: 'const open = [...before.open, ',
    to: 'const open = [...before.open.filter(({ number }) => state.open.has(number)), ',
  },
  {
    name: 'checkpoint: a request of an attempt that is over begins it again',
    file: 'node/saving',
    from: 'if (id <= this.ended || id < (this.order?.message.id ?? 0))',
    to: 'if (false)',
    scenario: {
      test: 'test/core/scheduler/saving-failures.test.ts',
      because: 'few schedules have a request that comes after the end of its attempt',
    },
  },
  {
    name: 'restore: an owner serves before it is durable that its shard is loaded',
    file: 'shard/owner',
    from: 'this.loadedDedup = Dedup.from(sessions);',
    to: 'this.loadedDedup = Dedup.from(sessions); this.beginRestored();',
    scenario: {
      test: 'test/core/scheduler/restore.test.ts',
      because: 'a push must be acknowledged, and its owner die, before the next decision is durable',
    },
  },
  {
    name: 'restore: a shard that is lost while it is loaded is not loaded again',
    file: 'placement/repair',
    from: '...(restore && { restore }), ',
    to: '',
    scenario: {
      test: 'test/core/scheduler/restore.test.ts',
      because: 'a schedule that has lost more than its code covers is not held to more',
    },
  },
  {
    name: 'restore: a shard forgets what it holds of open ranges',
    file: 'shard/owner',
    from: 'this.loadedDedup = Dedup.from(sessions);',
    to: 'this.loadedDedup = Dedup.from([]);',
  },
  {
    name: 'restore: rows count their steps from 0 again',
    file: 'node/loading',
    from: 'owner.native.loadRows(id, keys, values, state)',
    to:
      'owner.native.loadRows(id, keys, values, ' +
      'state.map((x, i) => ((i + 1) % (state.length / keys.length) === 0 ? 0 : x)))',
  },
  {
    name: 'restore: files of a shard are put into it in the order in which they come',
    file: 'node/loading',
    from: 'load.early.set(index, answer)',
    to: 'load.early.set(load.next, answer)',
  },
  {
    name: 'restore: the bytes of a file are discarded when it comes',
    file: 'node/loading',
    from: 'load.early.set(index, answer);',
    to: 'load.early.set(index, answer); this.discard(answer);',
  },
  {
    name: 'restore: parities of shards that are loaded count as complete',
    file: 'placement/form',
    from: 'const init = data.every((entry) => entry.init);',
    to: 'const init = true;',
  },
  {
    name: 'restore: sessions of open ranges are not open',
    file: 'scheduler/saving/restored',
    from: 'state.sessions.set(id, { id, leased: false });',
    to: '{}',
    scenario: {
      test: 'test/core/scheduler/restored-sessions.test.ts',
      because: 'few schedules are restored with a range that is open and trained again',
    },
  },
  {
    name: 'restore lost: the group keeps its sinks',
    file: 'scheduler/saving/restored',
    from: 'sinks: sinks.map(fresh)',
    to: 'sinks',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'few schedules lose more than the code allows and load it again',
    },
  },
  {
    name: 'restore lost: numbers of the checkpoint are forgotten',
    file: 'node/loading',
    from: 'const sessions = message.reshaped ? [] : ',
    to: 'const sessions = load.sessions ? [] : ',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'few schedules lose more than the code allows and load it again',
    },
  },
  {
    name: 'restore lost: the owner stays in its generation',
    file: 'scheduler/saving/restored',
    from: 'return { node, inc, gen: epoch, init: false, restore: true, rewound: true };',
    to: 'return { ...entry, restore: true, rewound: true };',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'few schedules lose more than the code allows and load it again',
    },
  },
  {
    name: 'restore lost: a shard that may yet be recovered is loaded, too',
    file: 'scheduler/saving/restored',
    from: 'if (isComplete(group.id, m, entry.gen))',
    to: 'if (isComplete(group.id, m, entry.gen) || entry.node !== 0)',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'few schedules ask while one shard of a group is lost and another one is being recovered',
    },
  },
  {
    name: 'gap: a client goes on behind what it still keeps',
    file: 'client/client',
    from: 'this.skipTo(shard, first.cseq);',
    to: 'this.skipTo(shard, shard.next);',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'few schedules restore a lost shard whose clients go on',
    },
  },
  {
    name: 'gap: what is skipped is not a part of the stream',
    file: 'shard/owner',
    from: 'if (id[1] <= this.head.last(client) || this.head.hasEnded(client))',
    to: 'if (this.head.record([client, next - 1]) === undefined)',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'few schedules restore a lost shard whose clients go on',
    },
  },
  {
    name: 'gap: the mark goes with the owner',
    file: 'placement/repair',
    from: '...(restore && { restore }), ...(rewound && { rewound })',
    to: '...(restore && { restore })',
    scenario: {
      test: 'test/core/scheduler/restore-lost.test.ts',
      because: 'few schedules lose the owner of a shard that they loaded again before its clients push',
    },
  },
  {
    name: 'reshaped: numbers of other shards count',
    file: 'node/loading',
    from: 'const sessions = message.reshaped ? [] : ',
    to: 'const sessions = ',
    scenario: {
      test: 'test/core/scheduler/reshaped.test.ts',
      because: 'schedules have as many shards after a restore as before, so that numbers would be right',
    },
  },
  {
    name: 'reshaped: rows of other shards are taken, too',
    file: 'node/loading',
    from: 'message.reshaped ? this.ownRows(owner, table) : table',
    to: 'table',
    scenario: {
      test: 'test/core/scheduler/reshaped.test.ts',
      because: 'schedules have as many shards after a restore as before',
    },
  },
  {
    name: 'barrier: a shard that another owner has saved is waited for',
    file: 'scheduler/saving/attempt',
    from: 'this.saved.has(key) || this.begun.get(key) === gen',
    to: 'this.begun.get(key) === gen',
    scenario: {
      test: 'test/core/scheduler/saving.test.ts',
      because: 'an owner must change after it has saved and before the others have begun',
    },
  },
  {
    name: 'barrier: clients go on before all shards have begun',
    file: 'scheduler/saving/saver',
    from: 'barrier.isOver || !attempt.hasBegun(this.ledger.map)',
    to: 'barrier.isOver',
  },
  {
    name: 'barrier: clients that were held in vain are held again at once',
    file: 'scheduler/saving/barrier',
    from: 'this.over ? 0 : now - this.startedAt',
    to: '0',
    scenario: {
      test: 'test/core/scheduler/saving.test.ts',
      because: 'workers come further even so, if no checkpoint needs what a lost worker has begun',
    },
  },
  {
    name: 'barrier: nobody waits for clients that push',
    file: 'scheduler/saving/barrier',
    from: '.some((client) => !this.held.has(client))',
    to: '.some(() => false)',
    scenario: {
      test: 'test/core/scheduler/saving.test.ts',
      because: 'few schedules have a client that pushes in the moment of a cut',
    },
  },
  {
    name: 'barrier: what a lost worker did of a range is not waited for',
    file: 'scheduler/samples/state',
    from: 'return !partial && ',
    to: 'return ',
    scenario: {
      test: 'test/core/scheduler/saving.test.ts',
      because: 'few schedules have both a barrier and a worker that is lost in the middle of a range',
    },
  },
  {
    name: 'barrier: a client counts that came while shards began',
    file: 'scheduler/saving/barrier',
    from: 'if (this.cut)',
    to: 'if (false)',
    scenario: {
      test: 'test/core/scheduler/saving.test.ts',
      because: 'few schedules have both a barrier and a client that comes in the middle of it',
    },
  },
  {
    name: 'barrier: a shard that becomes complete waits for the others of its node',
    file: 'node/saving',
    from: 'this.saves.length > 0 && !order.message.barrier',
    to: 'this.saves.length > 0',
    scenario: {
      test: 'test/core/scheduler/saving.test.ts',
      because: 'the attempt ends in time, and another one begins',
    },
  },
  {
    name: 'checkpoint: tables that were not chosen before have what changed since',
    file: 'scheduler/saving/chains',
    from: 'if (chosen !== this.tables)',
    to: 'if (false)',
    scenario: {
      test: 'test/core/scheduler/saving.test.ts',
      because: 'plans of the simulator save everything',
    },
  },
  {
    name: 'checkpoint: a shard without new files has the position of a new one',
    file: 'scheduler/saving/chains',
    from: 'added.length > 0 ? position : before.position',
    to: 'position',
    scenario: {
      test: 'test/core/scheduler/saving-exports.test.ts',
      because: 'plans of the simulator save everything',
    },
  },
  {
    name: 'checkpoint: a node that has given up is waited for when its shard has another owner',
    file: 'scheduler/saving/saver',
    from: 'if (!groups.some(({ data }) => data.some(({ node }) => node === from)))',
    to: 'if (groups[g]?.data[m]?.node !== from || groups[g]?.data[m]?.gen !== gen)',
    scenario: {
      test: 'test/core/scheduler/saving-failures.test.ts',
      because: 'the attempt ends in time, and another one begins',
    },
  },
  {
    name: 'deletion: the next files of a shard are taken for what changed',
    file: 'shard/snapshot',
    from: 'this.since = since;',
    to: 'this.since = wanted;',
  },
];
