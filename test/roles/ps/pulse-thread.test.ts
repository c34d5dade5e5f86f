/** The thread for pulses where the system gives none: the process goes on, says so, and tries again. */
import { EventEmitter } from 'node:events';
import type { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { codeOf } from '../../../src/common/errors.js';
import type { LogFields } from '../../../src/net/log.js';
import { PulseThread } from '../../../src/roles/ps/pulse-thread.js';

/** As Node throws it. */
const NO_THREAD = Object.assign(new Error('Worker initialization failure: EAGAIN'), {
  code: 'ERR_WORKER_INIT_FAILED',
});

class FakeThread extends EventEmitter {
  readonly told: unknown[] = [];
  postMessage(message: unknown): void {
    this.told.push(message);
  }
  unref(): void {}
  async terminate(): Promise<number> {
    return 0;
  }
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('a PS that gets no thread goes on without it, says why, and tries again', async () => {
  const lines: [event: string, fields: LogFields][] = [];
  const write = (event: string, fields: LogFields = {}) => void lines.push([event, fields]);
  const made: FakeThread[] = [];
  let refusals = 2;
  const make = () => {
    if (refusals-- > 0) throw NO_THREAD;
    made.push(new FakeThread());
    return made.at(-1) as unknown as Worker;
  };
  const route = { scheduler: '127.0.0.1:7077', token: undefined, tls: undefined };
  const pulses = new PulseThread(route, { info: write, warn: write, error: write }, make);
  const identity = { node: 1, inc: 1, job: 'job', scheduler: '127.0.0.1:7077' };
  pulses.tell(identity);
  pulses.turned();
  expect(lines).toEqual([['pulse.failed', { message: expect.stringMatching(/EAGAIN.*ulimit -u/) }]]);
  // A welcome meanwhile starts no second attempt.
  pulses.tell(identity);
  expect(lines).toHaveLength(1);
  vi.advanceTimersByTime(1000);
  expect([lines.length, made.length]).toEqual([2, 0]);
  vi.advanceTimersByTime(1000);
  expect([lines.length, made.length]).toEqual([2, 1]);
  pulses.tell(identity);
  expect(made[0]!.told).toEqual([identity]);
  await pulses.close();
});

it('that the system gives no thread is a limit of the system', () => {
  expect(codeOf(NO_THREAD, 'INTERNAL')).toBe('SYSTEM_LIMIT');
});
