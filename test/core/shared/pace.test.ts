/** The pace of background recovery: grows while requests do not suffer, shrinks when they do. */
import { expect, it } from 'vitest';
import { Pace } from '../../../src/core/shared/pace.js';

const TICK_MS = 20;

/**
 * Bytes per second that the background may take, in the last of `seconds` in which `requests(granted)` come
 * per tick.
 */
function granted(
  pace: Pace,
  from: number,
  seconds: number,
  recovering: boolean,
  requests: (blocks: number) => number,
): number {
  let blocks = 0;
  const perSecond = 1000 / TICK_MS;
  for (let tick = 0; tick < seconds * perSecond; tick++) {
    let taken = 0;
    while (recovering && pace.open && taken < 10_000) {
      pace.take(1);
      taken++;
    }
    if (tick >= (seconds - 1) * perSecond) blocks += taken;
    for (let i = requests(taken); i > 0; i--) pace.request();
    pace.tick(from + tick * TICK_MS, recovering);
  }
  return blocks * 4096;
}

it('goes faster and faster while as many requests are served as before', () => {
  const pace = new Pace();
  granted(pace, 0, 3, false, () => 10);
  const early = granted(pace, 3000, 1, true, () => 10);
  expect(early).toBeGreaterThan(2 << 20);
  expect(granted(pace, 4000, 5, true, () => 10)).toBeGreaterThan(2 * early);
});

it('gives way while fewer are served, but never stops', () => {
  const pace = new Pace();
  granted(pace, 0, 3, false, () => 10);
  const bytes = granted(pace, 3000, 6, true, () => 8);
  expect(bytes).toBeLessThan(4 << 20);
  expect(bytes).toBeGreaterThan(1 << 20);
});

it('settles where the background costs the requests little', () => {
  const pace = new Pace();
  granted(pace, 0, 3, false, () => 100);
  // Each block costs a fifth of a request: 100 requests a tick leave room for some 20 blocks at a share of
  // 0.96.
  let blocks = 0;
  let ticks = 0;
  granted(pace, 3000, 20, true, (taken) => {
    blocks += taken;
    ticks++;
    return Math.max(1, 100 - taken / 5);
  });
  expect(blocks / ticks).toBeGreaterThan(8);
  expect(blocks / ticks).toBeLessThan(40);
});

it.each([0.03, 0.1, 0.3])('costs the requests no more than its share: %d', (backgroundShare) => {
  const pace = new Pace({ backgroundShare });
  granted(pace, 0, 3, false, () => 1000);
  let [served, ticks] = [0, 0];
  // Each block costs a request, and the floor is ten blocks a tick.
  granted(pace, 3000, 20, true, (taken) => {
    const requests = Math.max(1, 1000 - taken);
    if (ticks++ >= 500) served += requests;
    return requests;
  });
  expect(1 - served / 500 / 1000).toBeGreaterThan(0.6 * backgroundShare);
  expect(1 - served / 500 / 1000).toBeLessThan(1.4 * backgroundShare);
});

it('has no limit when nobody asks for anything', () => {
  const pace = new Pace();
  granted(pace, 0, 3, false, () => 10);
  expect(granted(pace, 3000, 2, true, () => 0)).toBe((1000 / TICK_MS) * 10_000 * 4096);
});

it('rests while blocks that requests wait for are many', () => {
  const pace = new Pace();
  pace.request();
  pace.tick(0, true);
  pace.take(100_000);
  pace.request();
  pace.tick(TICK_MS, true);
  expect(pace.open).toBe(false);
});

it('leaves the first moments after a loss to keys, then to rows, and then to lost parities', () => {
  const pace = new Pace();
  granted(pace, 0, 1, false, () => 0);
  expect([pace.open, pace.wide, pace.openForParities]).toEqual([true, true, true]);
  pace.disturbed(1000);
  pace.tick(1000, true);
  expect([pace.open, pace.wide, pace.openForParities]).toEqual([true, false, false]);
  pace.tick(1110, true);
  expect([pace.wide, pace.openForParities]).toEqual([true, false]);
  pace.tick(1260, true, true);
  expect(pace.openForParities).toBe(false);
  pace.tick(1280, true, false);
  expect(pace.openForParities).toBe(true);
});

/** The ratio that a giver tells after `seconds` in which it gives content, except in every fifth second. */
function fares(pace: Pace, from: number, seconds: number, requests: number): number | undefined {
  let share: number | undefined;
  for (let tick = 0; tick < (seconds * 1000) / TICK_MS; tick++) {
    for (let i = 0; i < requests; i++) pace.request();
    pace.tick(from + tick * TICK_MS, false);
    if ((tick * TICK_MS) % 5000 < 4000) share = pace.give();
  }
  return share;
}

it('says how a giver fares by what it served before it gave', () => {
  const pace = new Pace();
  granted(pace, 0, 3, false, () => 10);
  expect(fares(pace, 3000, 1, 10)).toBeCloseTo(1, 1);
  expect(fares(pace, 4000, 4, 8)).toBeLessThan(0.87);
  // When requests become fewer for long, the content that is given is not the cause.
  expect(fares(pace, 8000, 24, 8)).toBeGreaterThan(0.96);
  expect(fares(pace, 32_000, 2, 0)).toBeUndefined();
});

it.each([1, 5])('never takes what moves cost for the new normal: %i givers that take turns', (count) => {
  const givers = Array.from({ length: count }, () => new Pace());
  const newcomer = new Pace();
  let blocks = 0;
  const last = 20 * (1000 / TICK_MS);
  for (let tick = 0; tick < 9 * last; tick++) {
    const moving = tick >= last;
    let taken = 0;
    while (moving && newcomer.openForMoves && taken < 1000) {
      newcomer.takeForMove(1);
      taken++;
    }
    if (taken > 0) newcomer.hear(givers[Math.floor(tick / 200) % count]!.give());
    // Each block costs a fifth of a request: a share of 0.97 leaves room for 15 blocks a tick.
    for (const giver of givers) {
      for (let i = 0; i < 100 - taken / 5; i++) giver.request();
      giver.tick(tick * TICK_MS, false, false, moving);
    }
    newcomer.tick(tick * TICK_MS, moving, false, moving);
    if (tick >= 8 * last) blocks += taken;
  }
  // The floor is 10 blocks with pauses; perfect would be 15 in three quarters of the time.
  expect(blocks / last).toBeGreaterThan(8);
  expect(blocks / last).toBeLessThan(20);
});

it('a shard that is missing here is no move: what is served meanwhile is not what is usual', () => {
  const pace = new Pace();
  granted(pace, 0, 3, false, () => 10);
  for (let tick = 0; tick < 500; tick++) {
    for (let i = 0; i < 2; i++) pace.request();
    pace.tick(3000 + tick * TICK_MS, true);
  }
  expect(pace.give()).toBeLessThan(0.35);
});

/**
 * Blocks that a node that serves nothing may move in the last of `seconds`, with the giver's word after each.
 */
function moved(pace: Pace, from: number, seconds: number, word: number | undefined): number {
  let blocks = 0;
  const perSecond = 1000 / TICK_MS;
  for (let tick = 0; tick < seconds * perSecond; tick++) {
    let taken = 0;
    while (pace.openForMoves && taken < 1000) {
      pace.takeForMove(1);
      taken++;
    }
    if (taken > 0) pace.hear(word);
    if (tick >= (seconds - 1) * perSecond) blocks += taken;
    pace.tick(from + tick * TICK_MS, true);
  }
  return blocks;
}

it('moves to a node that serves nothing as fast as those that give can stand', () => {
  const pace = new Pace();
  pace.tick(0, true);
  expect([pace.openForMoves, pace.wideForMoves, pace.wide]).toEqual([true, false, true]);
  const early = moved(pace, 0, 2, 1);
  expect(early).toBeGreaterThan(256);
  expect(moved(pace, 2000, 4, 1)).toBeGreaterThan(1.3 * early);
  expect(moved(pace, 6000, 6, 0.8)).toBeLessThan(600);
  // The givers get no requests any more.
  expect(moved(pace, 12_000, 2, undefined)).toBe((1000 / TICK_MS) * 1000);
  expect(pace.wideForMoves).toBe(true);
});

it('moves as fast to a node that served something once', () => {
  const [fresh, served] = [new Pace(), new Pace()];
  granted(served, 0, 2, false, () => 10);
  granted(fresh, 0, 2, false, () => 0);
  const blocks = (pace: Pace) => moved(pace, 2000, 6, 1);
  expect(blocks(served)).toBeGreaterThan(0.5 * blocks(fresh));
});

it('a window without requests says nothing to others', () => {
  const pace = new Pace();
  granted(pace, 0, 3, false, () => 10);
  for (let time = 3000; time < 8000; time += TICK_MS) {
    // Bursts that leave every other window empty.
    if (time % 460 === 0) for (let i = 0; i < 230; i++) pace.request();
    pace.tick(time, false);
    const share = pace.give();
    if (time > 4000 && share !== undefined) expect(share).toBeGreaterThan(0.8);
  }
});

it('what a giver says holds up moves and nothing else', () => {
  const pace = new Pace();
  granted(pace, 0, 3, false, () => 10);
  const move = moved(pace, 3000, 4, 0.5);
  const rows = granted(pace, 7000, 1, true, () => 10);
  expect(rows / 4096).toBeGreaterThan(2 * move);
  expect(pace.wideForMoves).toBe(false);
});
