/** The time at which a question is asked again. */
import { describe, expect, it } from 'vitest';
import { Retry } from '../../../src/core/shared/retry.js';

describe('a question', () => {
  it('is due at once when it was never asked, and then after the wait', () => {
    const retry = new Retry({ waitMs: 100 });
    expect([retry.begun, retry.overdue(0)]).toEqual([false, true]);
    retry.asked(10);
    expect([retry.begun, retry.overdue(110), retry.overdue(111)]).toEqual([true, false, true]);
    retry.reset();
    expect([retry.begun, retry.overdue(11)]).toEqual([false, true]);
  });

  it('is not repeated to somebody who answered within the wait', () => {
    const retry = new Retry({ waitMs: 100 });
    retry.asked(0);
    retry.answered(90);
    expect([retry.overdue(190), retry.overdue(191)]).toEqual([false, true]);
  });

  it('is repeated to somebody who answers, where that is wanted, after longer', () => {
    const retry = new Retry({ waitMs: 100, patience: 4 });
    retry.asked(0);
    retry.answered(310);
    expect([retry.overdueBefore(400), retry.overdue(400), retry.overdue(401)]).toEqual([0, false, true]);
    expect([retry.answering(410), retry.answering(411), retry.overdueBefore(411)]).toEqual([
      true,
      false,
      311,
    ]);
  });

  it('is repeated ever later up to a limit, until there is an answer', () => {
    const retry = new Retry({ waitMs: 100, maxWaitMs: 300 });
    const waits = [1, 2, 3].map(() => {
      retry.lengthen();
      return retry.waitMs;
    });
    expect(waits).toEqual([200, 300, 300]);
    retry.asked(0);
    expect([retry.overdue(300), retry.overdue(301)]).toEqual([false, true]);
    retry.answered(301);
    expect(retry.waitMs).toBe(100);
    const constant = new Retry({ waitMs: 100 });
    constant.lengthen();
    expect(constant.waitMs).toBe(100);
  });

  it('can be put off for another time than the usual one', () => {
    const retry = new Retry({ waitMs: 100 });
    retry.askAgainIn(20, 50);
    expect([retry.overdue(70), retry.overdue(71)]).toEqual([false, true]);
  });
});
