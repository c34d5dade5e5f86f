/** Changes that are to be done in time: the pace that they need, and when they are taken back. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Deadlines } from '../../../src/core/scheduler/scaling/deadlines.js';
import { Pace } from '../../../src/core/shared/pace.js';
import { kind } from '../harness.js';
import { BareScheduler } from './bare.js';
import { ask, change, cluster, drain, rebalance, start } from './scaling.js';

const MIB = 1 << 20;
/** Rows of 2 KiB in each data shard. */
const ROWS = 2000;
/** As a node ticks. */
const TICK_MS = 20;

afterEach(() => {
  vi.restoreAllMocks();
  cluster?.close();
});

/** A job whose nodes say that they serve half of the requests that they could, so that moves creep. */
function startBusy(policy = {}): void {
  vi.spyOn(Pace.prototype, 'give').mockReturnValue(0.5);
  start({ k: 2, r: 1, groups: 2, spares: 1, policy });
  const keys = Array.from({ length: ROWS }, (_, i) => i);
  for (let g = 0; g < 2; g++) for (let m = 0; m < 2; m++) cluster.client.push({ [m]: [{ keys }] }, g);
  cluster.advance(600);
}

/** Milliseconds until the change has ended, at most `limit`. */
function timeOf(id: number, limit: number): number {
  let ms = 0;
  for (; ms < limit && change(id).state === 'running'; ms += TICK_MS) cluster.advance(TICK_MS);
  return ms;
}

describe('the pace of a change', () => {
  it('follows its deadline: a drain creeps without one, and ends in time with one', () => {
    const limit = 4000;
    startBusy();
    const slow = drain('ps-0');
    expect(timeOf(slow.change, limit)).toBe(limit);
    cluster.close();
    startBusy();
    const timed = drain('ps-0', limit);
    expect(timeOf(timed.change, limit)).toBeLessThan(limit);
    expect(change(timed.change).state).toBe('done');
    expect(cluster.left).toEqual(['ps-0']);
    cluster.checkParities();
  });

  it('is told however often something else happens', () => {
    startBusy();
    const limit = 4000;
    const { change: id } = drain('ps-0', limit);
    let ms = 0;
    for (; ms < limit && change(id).state === 'running'; ms += TICK_MS) {
      rebalance(true);
      cluster.advance(TICK_MS);
    }
    expect(change(id).state).toBe('done');
  });

  it('rises by itself when messages about it were lost for a while', () => {
    startBusy();
    const lost = cluster.lose(kind(['movePace', 'moveProgress']));
    const { change: id } = drain('ps-0', 4000);
    cluster.advance(2000);
    expect(change(id)).toMatchObject({ state: 'running', shardsMoved: 0 });
    lost();
    expect(timeOf(id, 2000)).toBeLessThan(2000);
    expect(change(id).state).toBe('done');
  });

  it('holds for a moment, and what the controller found is as before', () => {
    const pace = new Pace();
    const granted = (from: number) => {
      let blocks = 0;
      for (let now = from; now < from + 1000; now += TICK_MS) {
        pace.request();
        pace.tick(now, true, false, true);
        while (pace.openForMoves && blocks < 1e5) {
          pace.takeForMove(1);
          blocks++;
        }
      }
      return blocks * 4096;
    };
    granted(0);
    const before = granted(1000);
    pace.need(64 * MIB);
    expect(granted(2000)).toBeGreaterThan(60 * MIB);
    granted(3000);
    expect(granted(4000)).toBeLessThan(3 * before);
  });

  it('is twice what is left in the time that is left of three quarters, where moves go to', () => {
    const deadlines = new Deadlines();
    const timed = { id: 1, timeoutMs: 20_000 };
    const target = (sid: number, node: number) => ({
      ...{ sid, node, what: `${sid}`, work: 40 * MIB, after: 10 * MIB },
    });
    deadlines.tick(0, [timed]);
    const [one, two] = [target(1, 7), target(2, 8)];
    expect(deadlines.paces(0, [{ id: 2, timeoutMs: 0 }], [one], MIB)).toEqual(new Map());
    expect(deadlines.paces(0, [timed], [one], 35 * MIB)).toEqual(new Map([[7, 10 * MIB]]));
    expect(deadlines.paces(10_000, [timed], [one, two], 0)).toEqual(
      new Map([
        [7, 16 * MIB],
        [8, 16 * MIB],
      ]),
    );
    deadlines.reported(one, (5 * MIB) / 4096, 10_000);
    expect(deadlines.paces(10_000, [timed], [one], 0)).toEqual(new Map([[7, 6 * MIB]]));
    // The time is up: the rest is to be there at once.
    expect(deadlines.paces(30_000, [timed], [one], 0)).toEqual(new Map([[7, 30 * MIB]]));
  });
});

describe('a change is taken back', () => {
  it('when nothing comes further for so long, and not because its time is up', () => {
    startBusy({ moveRate: MIB });
    const { change: id } = drain('ps-0', 1500);
    // The configured limit holds: it takes many times as long as it was to take.
    cluster.advance(6000);
    expect(change(id)).toMatchObject({ state: 'running' });
    const held = cluster.hold(kind('content'));
    cluster.advance(1200);
    expect(change(id).state).toBe('running');
    cluster.advance(900);
    expect(change(id)).toMatchObject({
      state: 'cancelled',
      reason: expect.stringMatching(
        /^no progress in 1.5 s: [12] moves were left; 3 PS are wanted as before$/,
      ),
    });
    held.release();
    cluster.advance(1500);
    expect(cluster.left).toEqual([]);
    expect(cluster.scheduler!.status().redundancy).toBe('full');
    cluster.checkParities();
  });

  it('not for time in which the scheduler did not run', () => {
    const job = new BareScheduler(1, 1);
    const nodes = [job.join('ps-0'), job.join('ps-1')];
    job.hear(job.attach().id, { t: 'scale', id: 1, ps: 3, timeoutMs: 2000 });
    const pass = (ms: number) => {
      job.tick(ms);
      for (const node of nodes) job.complete(node);
      return job.scheduler.changes.map(({ state }) => state);
    };
    pass(1000);
    expect(pass(60_000)).toEqual(['running']);
    const states = Array.from({ length: 4 }, () => pass(500)).flat();
    expect([states[0], states.at(-1)]).toEqual(['running', 'cancelled']);
  });

  it('also when the same move begins again and again', () => {
    const deadlines = new Deadlines();
    const timed = { id: 1, timeoutMs: 1000 };
    for (let now = 0; now <= 3000; now += 100) {
      deadlines.tick(now, [timed]);
      // A new target each time, of the same seat on the same node.
      const target = { sid: now, node: 7, what: '0/1>7', work: 0, after: 0 };
      if (now < 2000) deadlines.reported(target, 100 - (now % 500) / 10, now);
      expect(deadlines.isOver(timed, now)).toBe(now > 1400);
    }
  });

  it('not while a shard comes to a node again that it was on before', () => {
    const deadlines = new Deadlines();
    const timed = { id: 1, timeoutMs: 1000 };
    const target = (sid: number) => ({ sid, node: 7, what: '0/1>7', work: 0, after: 0 });
    for (let now = 0; now <= 4000; now += 100) {
      deadlines.tick(now, [timed]);
      deadlines.reported(target(now < 2000 ? 1 : 2), 100 - (now % 2000) / 20, now);
      if (now === 1900) deadlines.arrived('0/1>7', now);
      expect(deadlines.isOver(timed, now)).toBe(false);
    }
  });

  it('a process that asked for it is told, and it is not begun again by its next question', () => {
    startBusy();
    const held = cluster.hold(kind('content'));
    const { id } = cluster.nodes[0]!;
    const wish = (known: { change?: number }) =>
      ask({ t: 'drain', id: 0, node: '', timeoutMs: 1000, ...known }, id);
    const first = wish({});
    cluster.advance(600);
    expect(wish({ change: first.change })).toMatchObject({ change: first.change });
    cluster.advance(1200);
    expect(wish({ change: first.change })).toMatchObject({
      change: 0,
      code: 'TIMEOUT',
      message: expect.stringContaining('no progress in 1 s'),
    });
    held.release();
    // A process that asks for the first time begins a new drain.
    expect(wish({}).change).toBe(first.change + 1);
  });
});
