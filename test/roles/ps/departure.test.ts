/** How long a PS that leaves waits for a scheduler. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Message } from '../../../src/protocol/messages.js';
import { Departure } from '../../../src/roles/ps/departure.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const INC = 1;
const begun = (change: number): Message => ({ t: 'changeReply', id: 0, change, moves: [] });

test('a scheduler that begins elsewhere has the whole time to answer', async () => {
  const sent: Message[] = [];
  const departure = new Departure((message) => void sent.push(message), 'ps-0');
  const left = departure.ask(30_000);
  // Longer than most schedulers need to begin on another machine.
  await vi.advanceTimersByTimeAsync(29_000);
  expect(sent.length).toBeGreaterThan(100);
  departure.take(begun(7), INC);
  await vi.advanceTimersByTimeAsync(2000);
  expect(sent.at(-1)).toMatchObject({ t: 'drain', change: 7 });
  departure.take({ t: 'leave', inc: INC }, INC);
  await left;
});

test('without any answer it ends at its time', async () => {
  const failed = new Departure(() => {}, 'ps-0').ask(30_000).catch((error: unknown) => error);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(await failed).toMatchObject({
    code: 'UNREACHABLE',
    message: 'ps-0 was not drained: no scheduler answers in 30 s',
  });
});

test('one that was answered, and hears no more, ends at its time after the last answer', async () => {
  const departure = new Departure(() => {}, 'ps-0');
  const failed = departure.ask(30_000).catch((error: unknown) => error);
  await vi.advanceTimersByTimeAsync(20_000);
  departure.take(begun(7), INC);
  const ended = vi.fn();
  void failed.then(ended);
  await vi.advanceTimersByTimeAsync(29_000);
  expect(ended).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1000);
  expect(await failed).toMatchObject({ code: 'TIMEOUT' });
});
