/** Changes of what serves: joining, growing, shrinking, balancing, and how each is taken back (rule 28). */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { seatsOf } from '../../../src/core/placement/balance.js';
import { Pace } from '../../../src/core/shared/pace.js';
import { kind } from '../harness.js';
import {
  change,
  cluster,
  counts,
  fill,
  held,
  names,
  rebalance,
  scale,
  scaling,
  sinks,
  start,
} from './scaling.js';

afterEach(() => {
  vi.restoreAllMocks();
  cluster.close();
});

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

  it('ends with what it has, when no move to it arrives in three tries', () => {
    start({ schedulerPolicy: { balanceJoining: true, avoidMs: 1000 } });
    fill();
    const joined = cluster.addNode();
    const content = cluster.hold(kind('content'));
    const fails = () => {
      cluster.advance(1300);
      const moves = cluster.map.groups.flatMap(({ id: g, version: v, data, sinks }) =>
        sinks.slice(1).map(({ sid, movesMember = 0 }) => {
          const m = movesMember < data.length ? movesMember : 0;
          return { g, v, m, sid, owner: data[m]! };
        }),
      );
      for (const { owner, g, v, m, sid } of moves) {
        const message = { t: 'stalled' as const, g, m, gen: owner.gen, v, sid };
        cluster.stepScheduler({ kind: 'message', from: owner.node, role: 'node', message });
      }
      return moves.length;
    };
    expect([fails(), fails()].every((moves) => moves > 1)).toBe(true);
    expect(scaling().changes).toMatchObject([{ kind: 'join', state: 'running' }]);
    expect(fails()).toBeGreaterThan(1);
    content.release();
    cluster.advance(3000);
    expect(scaling().changes).toMatchObject([{ kind: 'join', state: 'done', shardsMoved: 0 }]);
    expect(held(joined.name)).toBe(0);
    expect(cluster.eventsNamed('move.refused')).toMatchObject([{ name: joined.name, tries: 3 }]);
    // The next change tries it again.
    rebalance();
    cluster.advance(6000);
    expect(counts()).toEqual([3, 3, 3, 3]);
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
  it('is held to what those say of themselves that give, and a recovery is not', () => {
    vi.spyOn(Pace.prototype, 'give').mockReturnValue(0.5);
    const [hear, take] = [vi.spyOn(Pace.prototype, 'hear'), vi.spyOn(Pace.prototype, 'takeForMove')];
    start();
    fill();
    scale(4);
    cluster.addNode();
    cluster.advance(6000);
    expect(counts()).toEqual([3, 3, 3, 3]);
    expect(new Set(hear.mock.calls.map(([share]) => share))).toEqual(new Set([0.5]));
    expect(take).toHaveBeenCalled();
    for (const spy of [hear, take]) spy.mockClear();
    cluster.crash(1);
    cluster.advance(20_000);
    expect(hear).not.toHaveBeenCalled();
    expect(take).not.toHaveBeenCalled();
  });

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
      reason: expect.stringContaining('no progress in 2 s'),
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
      cluster.stepScheduler({
        kind: 'message',
        from,
        role: 'client',
        message: { t: 'replaceSink', id: 9, g, sid },
      });
    content.release();
    cluster.advance(6000);
    expect([change(id).state, change(other).state]).toEqual(['done', 'done']);
    expect(counts()).toEqual([3, 3, 3, 3]);
  });
});

describe('a balance', () => {
  it('leaves the number of PS that are wanted to the change that asks for another', () => {
    start({ spares: 1 });
    fill();
    const { change: id } = scale(4);
    const { change: other } = rebalance();
    cluster.advance(6000);
    expect([change(id).state, change(other).state]).toEqual(['done', 'done']);
    expect(scaling()).toMatchObject({ wanted: 4, serving: 4 });
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

describe('two nodes that are lost at once', () => {
  it('are lost in one decision: the end of a move is not given up for a dead one (seed 1702009784)', () => {
    start({ k: 2, r: 2, groups: 1, spares: 1 });
    cluster.client.push({ 0: [{ keys: [1] }], 1: [{ keys: [2] }] });
    cluster.settle();
    const [, data, parity, , spare] = cluster.nodes;
    cluster.hold(kind('heartbeat', { from: spare!.id }));
    cluster.stepScheduler({ kind: 'move', g: 0, index: 0, node: spare!.id });
    cluster.settle();
    // The sink is complete there, and the scheduler has not heard of it.
    expect(cluster.map.groups[0]!.sinks.map(({ node }) => node)).toContain(spare!.id);
    for (const { id, inc } of [data!, parity!]) cluster.stepScheduler({ kind: 'closed', peer: id, inc });
    for (const index of [1, 2]) cluster.crash(index, { noticed: false });
    cluster.advance(1500);
    const group = cluster.map.groups[0]!;
    expect(group.sinks.find(({ index }) => index === 0)?.node).toBe(spare!.id);
    expect(group.data[1]!.node).not.toBe(spare!.id);
  });
});
