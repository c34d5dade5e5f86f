/** Bugs in planned moves. */
import type { Mutant } from './mutant.js';

export const MOVE_MUTANTS: readonly Mutant[] = [
  {
    name: 'move: cut over before the mirror is complete',
    file: 'placement/repair',
    from: 'else if (this.view.sinkComplete(mirror.sid) && isHealthy(this.current(), this.pool, this.view))',
    to: 'else',
  },
  {
    name: 'move: the mirror is not followed',
    file: 'shard/owner',
    from: 'followersOf(group, this.member)',
    to: "group.sinks.filter((s) => s.kind === 'P')",
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
    name: 'move: the old owner goes on after the cut-over',
    file: 'node/shards',
    from: 'this.drop(known);',
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
    name: 'move: a parity goes to free a node that a data shard keeps',
    file: 'placement/repair',
    from: 'succeeds && !this.isCompleteBeside(inUse)',
    to: 'succeeds',
    scenario: {
      test: 'test/core/placement/placement.test.ts',
      because: 'a node must be lost in the moment in which the second parity became complete',
    },
  },
  {
    name: 'move: a parity beside a data shard stays, though it lacks blocks and the second one none',
    file: 'placement/repair',
    from: 'if (!parity || !this.view.sinkComplete(parity.sid))',
    to: 'if (!parity)',
    scenario: {
      test: 'test/core/placement/placement.test.ts',
      because: 'a node must be lost while the second parity is complete and the first is not',
    },
  },
  {
    name: 'move: a parity that stands by is not kept',
    file: 'placement/repair',
    from: 'if (!target.protects || !this.view.sinkComplete(target.sid))',
    to: 'if (true)',
    scenario: {
      test: 'test/core/placement/placement.test.ts',
      because: 'a node must be lost while a second parity is complete and the first is out of reach',
    },
  },
  {
    name: 'move: a parity stands by before it is complete',
    file: 'placement/repair',
    from: 'if (!target.protects || !this.view.sinkComplete(target.sid))',
    to: 'if (!target.protects)',
    scenario: {
      test: 'test/core/placement/placement.test.ts',
      because: 'what stands by for nothing only takes the room that a lost shard gets',
    },
  },
  {
    name: 'move: a parity that stands by goes when its node gets a lost shard',
    file: 'placement/repair',
    from: '!swap.partner && !this.standsBy(sink)',
    to: '!swap.partner',
    scenario: {
      test: 'test/core/placement/placement.test.ts',
      because: 'the node of the first must be lost, too, with more than its group can do without',
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
    file: 'node/sinks',
    from: 'this.native.createSink(this.memory, group.data.length, r, entry.index, entry.init)',
    to: 'this.native.createSink(this.memory, group.data.length, r, entry.init ? entry.index : 0, entry.init)',
  },
  {
    name: 'swap: both arrive before the second parity is complete',
    file: 'placement/repair',
    from: '|| !complete(mirror) || !complete(parity)',
    to: '|| !complete(mirror)',
  },
  {
    name: 'swap: both arrive before the mirror is complete',
    file: 'placement/repair',
    from: '|| !complete(mirror) || !complete(parity)',
    to: '|| !complete(parity)',
  },
  {
    name: 'swap: the shard arrives alone',
    file: 'placement/repair',
    from: 'if (!mirror || this.swapOf(mirror))',
    to: 'if (!mirror)',
  },
  {
    name: 'swap: the parity arrives alone',
    file: 'placement/repair',
    from: 'if (!target || this.swapOf(target))',
    to: 'if (!target)',
  },
  {
    name: 'swap: when it is given up, the second parity takes the place of the first',
    file: 'placement/repair',
    from: 'this.view.sinkComplete(target.sid) && !this.swapOf(target)',
    to: 'this.view.sinkComplete(target.sid)',
    scenario: { test: 'test/sim/seeds.test.ts', because: 'one schedule in thousands gives up such a swap' },
  },
  {
    name: 'swap: a half that is left stays',
    file: 'placement/repair',
    from: 'this.dropHalvesOfSwaps();',
    to: '',
  },
];
