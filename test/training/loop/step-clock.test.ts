/** The parts of a training loop, by a clock that the test moves. */
import { expect, it } from 'vitest';
import { StepClock } from '../../../src/training/loop/step-clock.js';

function stage() {
  const time = { now: 0 };
  const clock = new StepClock(() => time.now);
  const promise = () => {
    let resolve = () => {};
    const settled = new Promise<void>((done) => {
      resolve = done;
    });
    return { settled, resolve };
  };
  return { time, clock, promise };
}

it('time of a phase is what was waited for', async () => {
  const { time, clock, promise } = stage();
  const rows = promise();
  const waiting = clock.during('pull', rows.settled);
  time.now = 1500;
  rows.resolve();
  await waiting;
  clock.computed(1000, false);
  clock.computed(1250, true);
  expect(clock.seconds).toEqual({ read: 0, pull: 1.5, compute: 0.75, push: 0 });
  expect([clock.productiveSeconds, clock.batches]).toEqual([0.5, 2]);
});

it('idle is the part of reading in which there was no range to be had', async () => {
  const { time, clock, promise } = stage();
  const [batch, range] = [promise(), promise()];
  const starving = clock.starving(range.settled);
  time.now = 1000;
  const reading = clock.during('read', batch.settled);
  time.now = 4000;
  range.resolve();
  await starving;
  time.now = 4500;
  batch.resolve();
  await reading;
  expect([clock.seconds.read, clock.idleSeconds]).toEqual([3.5, 3]);
});

it('a read that ends while no range is there counts once', async () => {
  const { time, clock, promise } = stage();
  const [first, second, range] = [promise(), promise(), promise()];
  const starving = clock.starving(range.settled);
  const one = clock.during('read', first.settled);
  time.now = 1000;
  first.resolve();
  await one;
  time.now = 2000;
  const other = clock.during('read', second.settled);
  time.now = 2500;
  range.resolve();
  await starving;
  second.resolve();
  await other;
  expect(clock.idleSeconds).toBe(1.5);
});
