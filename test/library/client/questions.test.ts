// Questions to owners, which wait, and when they are given up.
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { RequestOptions } from '../../../src/library/client/options.js';
import { askOwner } from '../../../src/library/client/questions.js';
import type { Session } from '../../../src/library/client/session.js';
import type { JobStatus } from '../../../src/protocol/messages.js';

beforeEach(() => {
  vi.useFakeTimers();
  onTestFinished(() => {
    vi.useRealTimers();
  });
});

/** No owner answers. `status`: what the scheduler says. */
function session(status: () => Promise<Partial<JobStatus>>) {
  const signals: (AbortSignal | undefined)[] = [];
  const query = (_: unknown, __: unknown, { signal }: RequestOptions = {}) => {
    signals.push(signal);
    return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))));
  };
  const asked = vi.fn(status);
  return { session: { query, status: asked } as unknown as Session, signals, asked };
}

const QUESTION = { t: 'shardStats', g: 3, m: 1 } as const;

describe('a question to an owner', () => {
  it('is given up when its shard is lost', async () => {
    const { session: job, signals } = session(async () => ({
      unrecoverable: [{ g: 3, m: 1, blocks: 1, rows: 1 }],
    }));
    const answer = askOwner(job, QUESTION, () => {});
    const refused = expect(answer).rejects.toMatchObject({ code: 'UNRECOVERABLE' });
    await vi.advanceTimersByTimeAsync(2000);
    await refused;
    expect(signals.map((signal) => signal?.aborted)).toEqual([true]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('is given up with the signal of who asks', async () => {
    const { session: job, signals } = session(async () => ({ unrecoverable: [] }));
    const abort = new AbortController();
    const answer = askOwner(job, QUESTION, () => {}, { signal: abort.signal });
    const refused = expect(answer).rejects.toThrow('aborted');
    await vi.advanceTimersByTimeAsync(2000);
    abort.abort();
    await refused;
    expect(signals[0]?.aborted).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('asks a scheduler that is away once, however many wait', async () => {
    const { session: job, asked } = session(() => new Promise(() => {}));
    for (let i = 0; i < 3; i++) void askOwner(job, QUESTION, () => {});
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toHaveBeenCalledTimes(1);
  });
});
