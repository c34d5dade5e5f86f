/** `--scale`: what can be asked for, and the figures of a scaling on made-up events. */
import { expect, test } from 'vitest';
import type { RoleEvent } from '../../../src/fleet/local/events.js';
import { problemOf, type RunReport } from '../../../src/fleet/local/report.js';
import { checkScales, parseScale, type ScalingRecord } from '../../../src/fleet/local/scaling.js';
import { scalingsOf, worstWindow } from '../../../src/fleet/local/scaling-report.js';
import { Throughput } from '../../../src/fleet/local/throughput.js';

test('a step is a number of PS at a progress', () => {
  expect(parseScale('ps=7@30%')).toEqual({ ps: 7, percent: 30 });
  expect(parseScale('ps=12@0.5%')).toEqual({ ps: 12, percent: 0.5 });
  for (const wrong of ['7@30%', 'ps=7', 'ps=7@30', 'ps=7@101%', 'ps=0@10%', 'ps=257@1%', 'worker=3@10%'])
    expect(() => parseScale(wrong), wrong).toThrow(/--scale must be ps=N@P%/);
});

test('fewer than the code needs are refused before anything starts', () => {
  checkScales([{ ps: 5, percent: 10 }], 5);
  expect(() => checkScales([{ ps: 4, percent: 10 }], 5)).toThrow(
    '--scale ps=4@10%: the code needs 5 PS nodes',
  );
});

/** 1000 samples per second, 400 between 6.0 s and 6.5 s. */
function training(): RoleEvent[] {
  const events: RoleEvent[] = [{ mono: 0, source: 'worker-0', event: 'worker.training' }];
  let samples = 0;
  for (let mono = 100; mono <= 10_000; mono += 100) {
    samples += mono > 6000 && mono <= 6500 ? 40 : 100;
    events.push({ mono, source: 'worker-0', event: 'worker.progress', samples, loss: 0.5 });
  }
  return events;
}
const record: ScalingRecord = {
  from: 5,
  to: 7,
  begun: 5000,
  ended: 7000,
  bytesMoved: 4096,
  shardsMoved: 10,
  shareMoved: 10 / 35,
  problem: undefined,
};

test('a scaling is measured against the steady rate before it', () => {
  const [scaling] = scalingsOf(training(), [record]);
  expect(scaling).toEqual({
    from: 5,
    to: 7,
    at: 5,
    seconds: 2,
    bytesMoved: 4096,
    shardsMoved: 10,
    shareMoved: 0.286,
    steadySamplesPerSecond: 1000,
    // A whole second with the slow half of one in it.
    worstWindow: 0.7,
    ok: true,
    problem: null,
    code: null,
  });
});

test('an early one is measured against the calm time of the whole training', () => {
  const early = { ...record, begun: 500, ended: 1500 };
  const [first] = scalingsOf(training(), [early, record]);
  // 2.5 to 5.0 s and 8.0 to 10.0 s.
  expect(first).toMatchObject({ steadySamplesPerSecond: 1000, worstWindow: 1 });
});

test('what could not be measured is null', () => {
  const early = { ...record, begun: 500, ended: 1500 };
  const late = { ...record, begun: 9500, ended: 9900 };
  const [first] = scalingsOf(training().slice(0, 30), [early]);
  expect([first!.steadySamplesPerSecond, first!.worstWindow]).toEqual([null, null]);
  const [last] = scalingsOf(training(), [late]);
  expect(last!.steadySamplesPerSecond).toBeGreaterThan(900);
  expect(last!.worstWindow).toBe(null);
  expect(scalingsOf([], [record])[0]).toMatchObject({ worstWindow: null, ok: true });
  expect(worstWindow(new Throughput([]), 10, 5)).toBe(undefined);
});

test('a scaling that did not happen makes the run unclean', () => {
  const [scaling] = scalingsOf(training(), [{ ...record, problem: 'no progress in 120 s', code: 'TIMEOUT' }]);
  expect(scaling).toMatchObject({ ok: false, problem: 'no progress in 120 s' });
  const pushes = { acked: 1, lost: 0, duplicated: 0 };
  const parity = { blocksExpected: 1, blocksChecked: 1, blocksUnprotected: 0, mismatched: 0 };
  const samples = { problems: [] } as unknown as RunReport['samples'];
  expect(problemOf({ pushes, parity, samples, scalings: [scaling!] })).toEqual({
    code: 'TIMEOUT',
    text: 'no scaling to 7 PS: no progress in 120 s',
  });
  expect(problemOf({ pushes, parity, samples, scalings: [{ ...scaling!, problem: null }] })).toBe(undefined);
});
