/** A cause that repeats: logged on change, then at 1, 10 and 60 minutes with a count. */
import { expect, it, onTestFinished, vi } from 'vitest';
import { Repeats, saidWhile } from '../../src/net/repeats.js';

const MINUTE = 60_000;

function timeline(until: number, everyMs: number): [minute: number, repeated: number | undefined][] {
  let now = 0;
  const repeats = new Repeats<string>(() => now);
  const lines: [number, number | undefined][] = [];
  for (; now <= until; now += everyMs)
    repeats.note('peer 3', (repeated) => lines.push([now / MINUTE, repeated]));
  return lines;
}

it('an hour of one occurrence a second is four lines, and no occurrence is left out of the counts', () => {
  const lines = timeline(60 * MINUTE, 1000);
  expect(lines).toEqual([
    [0, undefined],
    [1, 60],
    [10, 540],
    [60, 3000],
  ]);
});

it('from then on there is a line an hour', () => {
  const lines = timeline(5 * 60 * MINUTE, 1000);
  expect(lines.slice(4).map(([minute]) => minute)).toEqual([120, 180, 240, 300]);
});

it('a cause that is over begins anew, and causes do not know each other', () => {
  let now = 0;
  const repeats = new Repeats<string>(() => now);
  const lines: string[] = [];
  const note = (cause: string) => repeats.note(cause, (repeated) => lines.push(`${cause} ${repeated}`));
  note('a');
  note('b');
  now = 1000;
  note('a');
  repeats.over('a');
  note('a');
  expect(lines).toEqual(['a undefined', 'b undefined', 'a undefined']);
});

it('forgets the oldest of too many causes', () => {
  const repeats = new Repeats<number>(() => 0);
  let lines = 0;
  const note = (cause: number) => repeats.note(cause, () => lines++);
  for (let cause = 0; cause <= 4096; cause++) note(cause);
  note(4096);
  expect(lines).toBe(4097);
  note(0);
  expect(lines).toBe(4098);
});

it('a wait is told after 5 s, then as a cause that repeats, and no more when it is over', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'hrtime'] });
  onTestFinished(() => void vi.useRealTimers());
  const lines: (number | undefined)[] = [];
  let end = (_: string) => {};
  const work = new Promise<string>((resolve) => {
    end = resolve;
  });
  const told = saidWhile(work, (repeated) => lines.push(repeated));
  await vi.advanceTimersByTimeAsync(4999);
  expect(lines).toEqual([]);
  await vi.advanceTimersByTimeAsync(60 * MINUTE + 5001);
  expect(lines).toEqual([undefined, 12, 108, 600]);
  end('done');
  expect(await told).toBe('done');
  await vi.advanceTimersByTimeAsync(2 * 60 * MINUTE);
  expect(lines).toHaveLength(4);
});
