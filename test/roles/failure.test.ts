// Nodes die while two clients push without a pause: every push resolves, and in the end every row is exactly
// the sum.
import { describe, expect, it } from 'vitest';
import type { LocalClusterOptions } from '../../src/roles/cluster.js';
import { expectExactSums, noticed, redundant, statusWhere, twoPushers } from './support.js';

const ROWS = 600;

async function pushing(options: LocalClusterOptions) {
  const { job, clients, pushers } = await twoPushers(options, ROWS);
  const check = async () => {
    await expectExactSums(clients[1], 'counts', pushers);
    for (const each of clients) {
      for (const { sent, acknowledged, refused } of each.pushCounts())
        expect({ acknowledged, refused }).toEqual({ acknowledged: sent, refused: 0 });
    }
  };
  const more = (count: number) => Promise.all(pushers.map((pusher) => pusher.more(count)));
  await more(5);
  return { job, observer: clients[0], more, check };
}

describe('one node dies and comes back', () => {
  it.each([0, 1, 2])('node %i of a 2+1 job', async (index) => {
    const { job, observer, more, check } = await pushing({ code: '2+1' });
    await job.kill(index);
    await noticed(observer, `ps-${index}`);
    await more(5);
    await job.restart(index);
    await redundant(observer, 3);
    await more(5);
    await check();
  });

  it.each([0, 3])('node %i of a 2+1 job with a node more than it needs', async (index) => {
    const { job, observer, more, check } = await pushing({ code: '2+1', ps: 4 });
    await job.kill(index);
    await redundant(observer, 3);
    await more(5);
    await job.restart(index);
    await redundant(observer, 4);
    await check();
  });

  it('twice', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+1' });
    const incarnation = async () => (await observer.status()).nodes.find((node) => node.name === 'ps-1')!;
    const before = await incarnation();
    for (let round = 0; round < 2; round++) {
      await job.kill(1);
      await noticed(observer, 'ps-1');
      await job.restart(1);
      await redundant(observer, 3);
      await more(3);
    }
    const after = await incarnation();
    expect({ id: after.id, inc: after.inc }).toEqual({ id: before.id, inc: before.inc + 2 });
    await check();
  });

  it('and is back before anybody has noticed', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+1' });
    await job.kill(2);
    await job.restart(2);
    await more(5);
    await redundant(observer, 3);
    await check();
  });

  it('each of them in turn', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+1' });
    for (const index of [2, 0, 1]) {
      await job.kill(index);
      await noticed(observer, `ps-${index}`);
      await job.restart(index);
      await redundant(observer, 3);
      await more(2);
    }
    await check();
  });
});

describe('nodes that stay away', () => {
  it('with a standby the job is whole again', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+1', standby: 1 });
    expect(
      (await redundant(observer, 4)).nodes.filter((node) => node.standby).map((node) => node.name),
    ).toEqual(['ps-3']);
    await job.kill(1);
    await noticed(observer, 'ps-1');
    const status = await redundant(observer, 3);
    expect(status.nodes.find((node) => node.name === 'ps-3')?.standby).toBe(false);
    await more(5);
    await check();
  });

  it('without one the job goes on, and says what it lacks', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+1' });
    await job.kill(0);
    await noticed(observer, 'ps-0');
    const status = await statusWhere(observer, 'degraded', ({ redundancy }) => redundancy === 'degraded');
    expect(status.reasons.length).toBeGreaterThan(0);
    await more(5);
    await check();
  });
});

describe('two parities', () => {
  it('two nodes die at once', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+2' });
    await Promise.all([job.kill(0), job.kill(2)]);
    await noticed(observer, 'ps-0');
    await noticed(observer, 'ps-2');
    await more(5);
    await job.restart(0);
    await job.restart(2);
    await redundant(observer, 4);
    await check();
  });

  it('a node dies while another one is being recovered', async () => {
    const { job, observer, more, check } = await pushing({ code: '2+2', policy: { recoveryRate: 64 << 10 } });
    await job.kill(1);
    await noticed(observer, 'ps-1');
    expect((await observer.status()).redundancy).not.toBe('full');
    await job.kill(3);
    await noticed(observer, 'ps-3');
    await more(5);
    await job.restart(3);
    await job.restart(1);
    await redundant(observer, 4);
    await check();
  });
});

describe('more than the code can bear', () => {
  it('is said with UNRECOVERABLE, for what is lost only', async () => {
    const { job, observer, check } = await pushing({ code: '2+1', ps: 3 });
    await check();
    await Promise.all([job.kill(0), job.kill(1)]);
    const status = await statusWhere(observer, 'lost', ({ redundancy }) => redundancy === 'lost');
    expect(status.unrecoverable.length).toBeGreaterThan(0);
    const pull = (key: number) =>
      observer.pull([{ table: 'counts', keys: BigUint64Array.of(BigInt(key)) }]).then(
        () => 'OK',
        (error: { code: string }) => error.code,
      );
    const answers = new Set<string>();
    for (let key = 0; key < 60; key++) answers.add(await pull(key));
    expect(answers).toContain('UNRECOVERABLE');
    expect([...answers].filter((answer) => answer !== 'OK' && answer !== 'UNRECOVERABLE')).toEqual([]);
  });
});
