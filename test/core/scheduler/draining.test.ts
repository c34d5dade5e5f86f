/** Nodes that are emptied and leave (rules 28 and 30), and what can never be done. */
import { afterEach, describe, expect, it } from 'vitest';
import { parities } from '../../../src/protocol/map.js';
import type { MessageOf } from '../../../src/protocol/messages.js';
import { kind } from '../harness.js';
import {
  ask,
  change,
  cluster,
  counts,
  drain,
  fill,
  held,
  names,
  rebalance,
  scale,
  start,
} from './scaling.js';

afterEach(() => cluster.close());

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

  it('empties the node of that name where another one has it as its id', () => {
    start();
    const { id } = cluster.addNode({ name: '0' });
    cluster.addNode({ name: `${id}` });
    cluster.advance(600);
    drain(`${id}`);
    cluster.advance(6000);
    expect(cluster.left).toEqual([`${id}`]);
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

  it('a process that is to be started again hears so, as often as it is told to leave', () => {
    start({ spares: 1 });
    const { name, host, id, inc } = cluster.nodes[3]!;
    const { change: number } = ask({ t: 'drain', id: 2, node: name, timeoutMs: 0, restart: true });
    cluster.advance(3000);
    const leave = { t: 'leave', inc, restart: true } as const;
    expect(cluster.sent('leave').map(({ message }) => message)).toEqual([leave]);
    // As many are wanted as before: the process comes back.
    expect(change(number)).toMatchObject({ state: 'done', from: 3, to: 3, restart: true });
    cluster.crashScheduler();
    cluster.restartScheduler();
    const join: MessageOf<'join'> = { t: 'join', name, host, address: `${name}:1`, standby: false, id, inc };
    cluster.stepScheduler({ kind: 'join', link: 99, message: join });
    expect(cluster.replies).toContainEqual({ link: 99, message: leave });
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

  it('takes what is lost if nobody else can: redundancy does not wait for the end of a drain', () => {
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
      reason: `no progress in 20 s: ${reason}; 3 PS are wanted as before`,
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
