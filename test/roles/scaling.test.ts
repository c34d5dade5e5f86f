// The number of nodes changes while two clients push without a pause: every push resolves, and every row is
// exactly the sum.
import { describe, expect, it } from 'vitest';
import type { Client } from '../../src/library/client/client.js';
import { checkParity } from '../../src/library/tools/parity.js';
import { restart } from '../../src/library/tools/restart.js';
import { drain, plannedMoves, rebalance, scale } from '../../src/library/tools/scaling.js';
import type { LocalClusterOptions } from '../../src/roles/cluster.js';
import {
  client,
  expectExactSums,
  ps,
  redundant,
  rejection,
  scheduler,
  statusWhere,
  twoPushers,
} from './support.js';

const ROWS = 600;

async function pushing(options: LocalClusterOptions) {
  const { job, clients, pushers } = await twoPushers(options, ROWS);
  const more = (count: number) => Promise.all(pushers.map((pusher) => pusher.more(count)));
  const check = async () => {
    await expectExactSums(clients[1], 'counts', pushers);
    const { mismatched, blocksUnprotected } = await checkParity(clients[0]);
    expect({ mismatched, blocksUnprotected }).toEqual({ mismatched: 0, blocksUnprotected: 0 });
  };
  await more(5);
  return { job, observer: clients[0], more, check };
}

const held = async (from: Client): Promise<number[]> =>
  (await from.status()).nodes.map((node) => node.dataShards + node.parityShards);

describe('while pushes go on', () => {
  it('a job grows from 3 to 5 nodes and shrinks again; nothing is lost or applied twice', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+1' });
    const growing = scale(observer, 5);
    await job.add();
    await job.add();
    const grown = await growing;
    expect(grown).toMatchObject({ state: 'done', from: 3, to: 5 });
    const shares = await held(observer);
    expect(shares.length).toBe(5);
    expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(2);
    await more(5);
    const shrunk = await scale(observer, 3);
    expect(shrunk).toMatchObject({ state: 'done', to: 3, leaving: ['ps-4', 'ps-3'] });
    const status = await redundant(observer, 3);
    expect(status.nodes.map((node) => node.name)).toEqual(['ps-0', 'ps-1', 'ps-2']);
    await more(5);
    await check();
  });

  it('a node is drained and another one takes its share', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+1', standby: 1 });
    expect(await drain(observer, 'ps-1')).toMatchObject({ state: 'done', leaving: ['ps-1'] });
    await job.nodes[1]!.left;
    expect((await redundant(observer, 3)).nodes.map((node) => node.name)).toEqual(['ps-0', 'ps-2', 'ps-3']);
    await more(5);
    await check();
  });

  it('a node that joins unasked gets its share; rebalancing comes to an end', async () => {
    const { job, observer, more, check } = await pushing({ code: '1+1', groups: 4 });
    await job.add();
    await statusWhere(observer, 'the share of ps-2', ({ nodes, scaling }) => {
      const { dataShards = 0, parityShards = 0 } = nodes.find((node) => node.name === 'ps-2') ?? {};
      const over = scaling.changes.every((change) => change.state === 'done');
      return over && dataShards + parityShards >= 3;
    });
    expect(await rebalance(observer)).toMatchObject({ state: 'done' });
    // Loads change while pushes go on, so what it would move by now is another question; but it is answered.
    expect(await plannedMoves(observer)).toBeInstanceOf(Array);
    await more(5);
    await check();
  });
});

describe('what cannot be done', () => {
  it('fewer nodes than the code needs, and nodes that never come', async () => {
    const { observer, check } = await pushing({ code: '2+1' });
    expect(await rejection(scale(observer, 2))).toMatchObject({ code: 'NOT_ENOUGH_NODES' });
    expect(await rejection(drain(observer, 'ps-0'))).toMatchObject({ code: 'NOT_ENOUGH_NODES' });
    expect(await rejection(drain(observer, 'nobody'))).toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(await rejection(scale(observer, 4, { timeoutMs: 200 }))).toEqual({
      code: 'TIMEOUT',
      message: 'no progress in 0.2 s: 1 of 4 PS have not joined; 3 PS are wanted as before',
    });
    const { scaling, redundancy } = await observer.status();
    expect({ wanted: scaling.wanted, redundancy }).toEqual({ wanted: 3, redundancy: 'full' });
    await check();
  });

  it('with a scheduler that is away each change fails at its time', async () => {
    const { address, close } = await scheduler({ nodes: 1 });
    await ps({ scheduler: address });
    const alone = await client(address);
    const growing = rejection(scale(alone, 2, { timeoutMs: 3000 }));
    await statusWhere(alone, 'the change', ({ scaling }) => scaling.changes.length > 0);
    await close();
    const timeoutMs = 50;
    const failures = await Promise.all([
      growing,
      rejection(scale(alone, 3, { timeoutMs })),
      rejection(drain(alone, 'ps-0', { timeoutMs })),
      rejection(rebalance(alone, { timeoutMs })),
      rejection(restart(alone, { timeoutMs })),
      rejection(plannedMoves(alone, { timeoutMs })),
    ]);
    for (const { code, message } of failures) {
      expect(code).toBe('UNREACHABLE');
      expect(message).toContain(address);
    }
  });

  it('a node that asks to leave is told why it cannot', async () => {
    const { job } = await pushing({ code: '2+1' });
    expect(await rejection(job.nodes[0]!.drain(10_000))).toEqual({
      code: 'NOT_ENOUGH_NODES',
      message: 'ps-0 cannot leave: 2 PS would be left, and the code of this job needs 3',
    });
  });

  it('before the job has started a node leaves at once', async () => {
    const { address } = await scheduler({ nodes: 2 });
    const alone = await ps({ scheduler: address });
    await alone.drain(10_000);
    const watcher = await client(address, { waitForJob: false });
    expect((await watcher.status()).nodes).toEqual([]);
  });
});
