/** Changes of what serves: joining, growing, shrinking, draining, balancing, and how each is taken back (rule 28). */
import { afterEach, describe, expect, it } from 'vitest';
import { parities } from '../../src/core/placement.js';
import { seatsOf } from '../../src/core/plan.js';
import type { Message, MessageOf } from '../../src/protocol/messages.js';
import { Cluster, type ClusterOptions, kind } from './harness.js';

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({ k: 2, r: 1, groups: 4, ...options });
  cluster.advance(600);
  return cluster;
};
afterEach(() => cluster.close());

type Ask = MessageOf<'scale'> | MessageOf<'drain'> | MessageOf<'rebalance'>;

/** Asks the scheduler as a client (or another peer) would; its answer. */
function ask(message: Ask, from = cluster.client.id): MessageOf<'changeReply'> {
  const mark = cluster.history.length;
  cluster.stepScheduler({ kind: 'message', from, message: message as Message });
  const answers = cluster.sent('changeReply', mark).map((packet) => packet.message);
  cluster.settle();
  expect(answers.length).toBe(1);
  return answers[0]!;
}
const scale = (ps: number, timeoutMs = 0) => ask({ t: 'scale', id: 1, ps, timeoutMs });
const drain = (node: string, timeoutMs = 0) => ask({ t: 'drain', id: 2, node, timeoutMs });
const rebalance = (dryRun = false) => ask({ t: 'rebalance', id: 3, dryRun, timeoutMs: 0 });

const scaling = () => cluster.scheduler!.status().scaling;
const change = (id: number) => scaling().changes.find((entry) => entry.id === id)!;
const held = (name: string): number => {
  const { id } = cluster.nodes.find((actor) => actor.name === name)!;
  return cluster.map.groups.flatMap(seatsOf).filter((seat) => seat.node === id).length;
};
const counts = () => cluster.nodes.filter((actor) => actor.node).map((actor) => held(actor.name));
const names = () => cluster.map.nodes.map((node) => node.name);
const sinks = () => cluster.map.groups.map((group) => group.sinks.length);

/** Rows in every shard, so that there is something to move. */
function fill(): void {
  for (let g = 0; g < 4; g++)
    for (let m = 0; m < 2; m++) cluster.client.push({ [m]: [{ keys: [1 + g] }] }, g);
  cluster.settle();
}

describe('a PS that joins a running job', () => {
  it('gets its share unasked, and everything is still there', () => {
    start({ schedulerPolicy: { balanceJoining: true } });
    fill();
    cluster.addNode();
    cluster.advance(6000);
    expect(counts()).toEqual([3, 3, 3, 3]);
    expect(scaling()).toMatchObject({ wanted: 4, serving: 4 });
    expect(scaling().changes).toMatchObject([{ kind: 'join', state: 'done', shardsMoved: 3 }]);
    expect(sinks()).toEqual([1, 1, 1, 1]);
    cluster.checkParities();
  });

  it('gets nothing when it is a standby, or when nobody wants that', () => {
    start({ schedulerPolicy: { balanceJoining: true } });
    cluster.addNode({ standby: true });
    cluster.advance(3000);
    expect(counts()).toEqual([4, 4, 4, 0]);
    cluster.close();
    start();
    cluster.addNode();
    cluster.advance(3000);
    expect(counts()).toEqual([4, 4, 4, 0]);
    expect(scaling().changes).toEqual([]);
  });
});

describe('growing', () => {
  it('waits until all have joined, then moves each shard once', () => {
    start();
    fill();
    const { change: id } = scale(5);
    cluster.addNode();
    cluster.advance(2000);
    expect(change(id)).toMatchObject({
      state: 'running',
      reason: 'waiting for 1 PS to join',
      shardsMoved: 0,
    });
    cluster.addNode();
    cluster.advance(9000);
    expect(change(id)).toMatchObject({ kind: 'scale', state: 'done', from: 3, to: 5 });
    expect(Math.max(...counts()) - Math.min(...counts())).toBeLessThanOrEqual(1);
    expect(cluster.eventsNamed('move.done').length).toBe(change(id).shardsMoved);
    // The two new ones hold floor(12 / 5) or ceil(12 / 5) each, and nothing else moved.
    expect(change(id).shardsMoved).toBe(held('ps-3') + held('ps-4'));
    cluster.checkParities();
  });

  it('is taken back when its time is over: what is under way ends where it was', () => {
    start();
    fill();
    const before = cluster.map.groups.flatMap(seatsOf);
    const { change: id } = scale(4, 2000);
    const held = cluster.hold(kind('content'));
    cluster.addNode();
    cluster.advance(1200);
    expect(sinks().some((count) => count > 1)).toBe(true);
    cluster.advance(1500);
    expect(change(id)).toMatchObject({
      state: 'cancelled',
      reason: expect.stringContaining('not done in 2 s'),
    });
    expect(sinks()).toEqual([1, 1, 1, 1]);
    expect(cluster.map.groups.flatMap(seatsOf)).toEqual(before);
    expect(scaling().wanted).toBe(3);
    held.release();
    cluster.advance(3000);
    expect(cluster.scheduler!.status().redundancy).toBe('full');
    expect(cluster.map.groups.flatMap(seatsOf)).toEqual(before);
  });

  it('goes on after a restart of the scheduler', () => {
    start();
    fill();
    const { change: id } = scale(4);
    cluster.crashScheduler();
    cluster.restartScheduler();
    cluster.addNode();
    cluster.advance(6000);
    expect(change(id)).toMatchObject({ state: 'done' });
    expect(counts()).toEqual([3, 3, 3, 3]);
  });

  it('survives the death of the new node in the middle, and begins again with the next', () => {
    start();
    fill();
    const { change: id } = scale(4);
    const lost = cluster.hold(kind('content'));
    cluster.addNode();
    cluster.advance(1200);
    cluster.crash(3);
    lost.drop();
    cluster.advance(3000);
    expect(sinks()).toEqual([1, 1, 1, 1]);
    expect(change(id).state).toBe('running');
    cluster.restart(3);
    cluster.advance(6000);
    expect(change(id).state).toBe('done');
    expect(counts()).toEqual([3, 3, 3, 3]);
    cluster.checkParities();
  });
});

describe('shrinking', () => {
  it('empties the newest, which leave together, and forgets them', () => {
    start({ spares: 2 });
    rebalance();
    cluster.advance(9000);
    fill();
    const { change: id } = scale(3);
    cluster.advance(9000);
    expect(change(id)).toMatchObject({ state: 'done', leaving: ['ps-4', 'ps-3'] });
    expect(cluster.left.sort()).toEqual(['ps-3', 'ps-4']);
    expect(names()).toEqual(['ps-0', 'ps-1', 'ps-2']);
    expect(counts()).toEqual([4, 4, 4]);
    expect(cluster.scheduler!.status().redundancy).toBe('full');
    expect(cluster.eventsNamed('node.lost')).toEqual([]);
    cluster.checkParities();
  });

  it('below what the code needs is refused with the reason', () => {
    start();
    expect(scale(2)).toMatchObject({
      change: 0,
      code: 'NOT_ENOUGH_NODES',
      message: '2 PS are too few: the code of this job needs 3 different ones for each group',
    });
    expect(scaling().changes).toEqual([]);
  });

  it('is taken back when its time is over: nobody has left, the marks are gone', () => {
    start({ spares: 1 });
    rebalance();
    cluster.advance(6000);
    const lost = cluster.hold(kind('content'));
    fill();
    const { change: id } = scale(3, 1500);
    cluster.advance(3000);
    lost.release();
    cluster.advance(3000);
    expect(change(id)).toMatchObject({ state: 'cancelled', leaving: ['ps-3'] });
    expect(cluster.left).toEqual([]);
    expect(scaling()).toMatchObject({ wanted: 3, serving: 4 });
    expect(cluster.scheduler!.status().redundancy).toBe('full');
  });
});

describe('draining', () => {
  it('empties one node, by name, by id, or at its own wish', () => {
    for (const by of ['name', 'id', 'itself']) {
      start({ spares: 1 });
      fill();
      const node = cluster.nodes[1]!;
      if (by === 'itself') ask({ t: 'drain', id: 0, node: '', timeoutMs: 0 }, node.id);
      else drain(by === 'name' ? node.name : `${node.id}`);
      cluster.advance(6000);
      expect(cluster.left).toEqual(['ps-1']);
      expect(names()).toEqual(['ps-0', 'ps-2', 'ps-3']);
      expect(counts()).toEqual([4, 4, 4]);
      cluster.checkParities();
      if (by !== 'itself') cluster.close();
    }
  });

  it('counts every shard that it has moved by the time it is done', () => {
    start({ spares: 1 });
    fill();
    const mark = held('ps-0');
    const { change: id } = drain('ps-0');
    while (change(id).state === 'running') cluster.advance(20);
    expect(change(id)).toMatchObject({ state: 'done', shardsMoved: mark });
  });

  it('a standby takes the place of the one that leaves', () => {
    start();
    fill();
    cluster.addNode({ standby: true });
    drain('ps-0');
    cluster.advance(6000);
    expect(cluster.left).toEqual(['ps-0']);
    expect(counts()).toEqual([4, 4, 4]);
  });

  it('is refused when the others do not suffice, and for a node that nobody knows', () => {
    start();
    expect(drain('ps-1')).toMatchObject({
      code: 'NOT_ENOUGH_NODES',
      message: 'ps-1 cannot leave: 2 PS would be left, and the code of this job needs 3',
    });
    expect(drain('ps-9')).toMatchObject({
      code: 'BAD_ARGUMENT',
      message: 'no PS "ps-9" is part of this job',
    });
    expect(cluster.left).toEqual([]);
  });

  it('a process that wants to end is asked to stay as long as others lack', () => {
    start();
    fill();
    const wish = (index: number) =>
      ask({ t: 'drain', id: 0, node: '', timeoutMs: 0 }, cluster.nodes[index]!.id);
    // Both at once: the second one waits for what the first one takes with it.
    expect(wish(0).code).toBe('NOT_ENOUGH_NODES');
    expect(wish(1).code).toBe('UNRECOVERABLE');
    cluster.crash(0);
    cluster.advance(3000);
    expect(wish(1).code).toBe('UNRECOVERABLE');
    cluster.restart(0);
    cluster.advance(9000);
    expect(cluster.scheduler!.status().redundancy).toBe('full');
    expect(wish(1).code).toBe('NOT_ENOUGH_NODES');
    cluster.crash(1);
    cluster.restart(1);
    cluster.advance(9000);
    expect(cluster.scheduler!.status()).toMatchObject({ redundancy: 'full', unrecoverable: [] });
    cluster.checkParities();
  });

  it('the same question twice is one change', () => {
    start({ spares: 1 });
    expect(drain('ps-1').change).toBe(drain('ps-1').change);
    expect(scale(3).change).toBe(scale(3).change);
  });

  it('a node that left and comes back under its old identity is told again', () => {
    start({ spares: 1 });
    const { name, host, id, inc } = cluster.nodes[3]!;
    drain(name);
    cluster.advance(3000);
    const join: MessageOf<'join'> = { t: 'join', name, host, address: `${name}:1`, standby: false, id, inc };
    cluster.stepScheduler({ kind: 'join', link: 99, message: join });
    expect(cluster.replies).toContainEqual({ link: 99, message: { t: 'leave', inc } });
    expect(names()).not.toContain(name);
    // A new process of that name is welcome.
    cluster.restart(3);
    expect(names()).toContain(name);
  });

  it('a node that has not heard that it is to leave is told again when it is heard of', () => {
    start({ spares: 1 });
    const lost = cluster.hold(kind('leave'));
    drain('ps-3');
    cluster.settle();
    expect(lost.packets.length).toBe(1);
    lost.drop();
    cluster.advance(600);
    expect(cluster.left).toEqual(['ps-3']);
  });

  it('a node that has lost its connection for a moment is emptied all the same', () => {
    start({ spares: 1 });
    fill();
    const { name, host, id, inc } = cluster.nodes[1]!;
    cluster.stepScheduler({ kind: 'closed', peer: id, inc });
    drain(name);
    const join: MessageOf<'join'> = { t: 'join', name, host, address: `${name}:1`, standby: false, id, inc };
    cluster.stepScheduler({ kind: 'join', link: 1, message: join });
    cluster.advance(6000);
    expect(cluster.left).toEqual([name]);
  });

  it('gets nothing while it is being emptied, not even what another one loses', () => {
    start({ spares: 2 });
    const content = cluster.hold(kind('content'));
    fill();
    drain('ps-0');
    cluster.advance(300);
    cluster.crash(1);
    cluster.advance(300);
    const { id } = cluster.nodes[0]!;
    const at = cluster.map.groups.flatMap((group) =>
      [...group.data, ...group.sinks].filter((entry) => entry.node === id && !entry.init),
    );
    expect(at).toEqual([]);
    content.release();
    cluster.advance(9000);
    expect(cluster.left).toEqual(['ps-0']);
  });

  it('takes what is lost where nobody else can, so that redundancy does not wait for the end of a drain', () => {
    start({ spares: 1 });
    fill();
    // Two groups leave it, and then it is the only node outside of them.
    const content = cluster.hold(({ message }) => message.t === 'content' && message.g >= 2);
    const { change: id } = drain('ps-0');
    cluster.advance(3000);
    const here = cluster.nodes[0]!.id;
    const used = cluster.map.groups.map((group) =>
      [...group.data, ...parities(group)].map(({ node }) => node),
    );
    expect(used.filter((nodes) => nodes.includes(here)).length).toBe(2);
    content.drop();
    cluster.crash(2);
    cluster.advance(9000);
    expect(cluster.scheduler!.status()).toMatchObject({ redundancy: 'full', unrecoverable: [] });
    for (const group of cluster.map.groups)
      expect(new Set([...group.data, ...group.sinks].map((entry) => entry.node)).size).toBe(3);
    expect(change(id).state).toBe('running');
    cluster.checkParities();
    // With another node it can go.
    cluster.addNode();
    cluster.advance(9000);
    expect(cluster.left).toEqual(['ps-0']);
    expect(cluster.scheduler!.status().redundancy).toBe('full');
    cluster.checkParities();
  });
});

describe('what can never be done', () => {
  it('says so: what is left on a node that leaves fits nowhere', () => {
    start({ spares: 1 });
    fill();
    const content = cluster.hold(kind('content'));
    const { change: id } = drain('ps-0', 20_000);
    cluster.advance(300);
    cluster.crash(1);
    content.release();
    cluster.advance(9000);
    expect(cluster.scheduler!.status().redundancy).toBe('full');
    const reason = `waiting for PS that can take ${held('ps-0')} shards`;
    expect(change(id)).toMatchObject({ state: 'running', reason });
    cluster.advance(15_000);
    expect(change(id)).toMatchObject({
      state: 'cancelled',
      reason: `not done in 20 s: ${reason}; 3 PS are wanted as before`,
    });
  });

  it('what is beyond repair does not move, and nobody but those that it is on wait for it', () => {
    start({ spares: 3 });
    fill();
    const lost = cluster.lose(kind('equation'));
    cluster.crash(0);
    cluster.settle();
    cluster.crash(2);
    cluster.settle();
    lost();
    cluster.advance(3000);
    expect(cluster.scheduler!.status().redundancy).toBe('lost');
    const { change: id } = rebalance();
    cluster.advance(6000);
    expect(change(id)).toMatchObject({ state: 'done' });
    const { change: drained } = drain('ps-1');
    cluster.advance(6000);
    expect(change(drained).reason).toBe(`${held('ps-1')} shards are beyond repair and cannot move`);
  });
});

describe('rebalancing', () => {
  it('a dry run says what would move, and moves nothing', () => {
    start({ spares: 1 });
    const { moves, change: id } = rebalance(true);
    expect(id).toBe(0);
    expect(moves.length).toBe(3);
    expect(moves.every((move) => move.to === 'ps-3')).toBe(true);
    cluster.advance(3000);
    expect(counts()).toEqual([4, 4, 4, 0]);
  });

  it('moves one shard at a time in a job of few groups', () => {
    start({ spares: 1, schedulerPolicy: { groupsPerMove: 8 } });
    fill();
    const { change: id } = rebalance();
    for (let step = 0; step < 60 && change(id).state === 'running'; step++) {
      expect(sinks().reduce((sum, count) => sum + count - 1, 0)).toBeLessThanOrEqual(1);
      cluster.advance(300);
    }
    expect(change(id)).toMatchObject({ state: 'done', shardsMoved: 3 });
  });

  it('never moves two members of a group at once, nor more shards than are allowed', () => {
    start({ spares: 3, schedulerPolicy: { maxMoves: 2 } });
    fill();
    const { change: id } = rebalance();
    for (let step = 0; step < 60 && change(id).state === 'running'; step++) {
      const extra = sinks().map((count) => count - 1);
      expect(Math.max(...extra)).toBeLessThanOrEqual(1);
      expect(extra.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(2);
      cluster.advance(300);
    }
    expect(change(id).state).toBe('done');
    expect(counts()).toEqual([2, 2, 2, 2, 2, 2]);
  });
});

describe('a plan', () => {
  it('that counted on moves under way is made anew when they fail', () => {
    start({ spares: 1 });
    fill();
    const content = cluster.hold(kind('content'));
    const { change: id } = scale(4);
    cluster.advance(300);
    // Another change: what is under way counts as done in the plan for both.
    const { change: other } = rebalance();
    cluster.advance(300);
    const newcomers = cluster.map.groups.flatMap(({ id: g, sinks }) =>
      sinks.slice(1).map(({ sid }) => ({ g, sid })),
    );
    expect(newcomers.length).toBe(3);
    const from = cluster.client.id;
    for (const { g, sid } of newcomers)
      cluster.stepScheduler({ kind: 'message', from, message: { t: 'replaceSink', id: 9, g, sid } });
    content.release();
    cluster.advance(6000);
    expect([change(id).state, change(other).state]).toEqual(['done', 'done']);
    expect(counts()).toEqual([3, 3, 3, 3]);
  });
});

describe('redundancy', () => {
  it('is there all the time: a move takes nothing away', () => {
    start({ spares: 1 });
    fill();
    const mark = cluster.events.length;
    rebalance();
    cluster.advance(6000);
    expect(counts()).toEqual([3, 3, 3, 3]);
    expect(cluster.events.slice(mark).filter(({ name }) => name === 'redundancy')).toEqual([]);
  });
});
