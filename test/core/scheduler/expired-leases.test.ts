/** A lease that expired is a failure of its range only where a batch of it may be at fault. */
import { describe, expect, it } from 'vitest';
import type { MessageOf } from '../../../src/protocol/messages.js';
import { Book, POLICY } from './book.js';

const numberOf = (lease: MessageOf<'acquired'> | undefined) => lease?.range?.number;

describe('leases that expire', () => {
  const DOUBTED_MS = 4 * POLICY.leaseMs;
  /** Workers take range 0 one after the other and are silent for the time of a lease. */
  const stall = (book: Book, ...workers: number[]) =>
    workers.map((worker) => {
      const lease = book.acquire(worker)!;
      expect(numberOf(lease)).toBe(0);
      book.later(POLICY.leaseMs + 1);
      expect(book.lostTo(worker)).toContain(0);
      return lease;
    });
  const opened = () => {
    const book = new Book();
    book.open(1);
    return book;
  };

  it('are no failures of the range when their workers were stopped, and hand it back', () => {
    const book = opened();
    for (let round = 0; round < 5; round++) {
      const [lease] = stall(book, 1);
      book.release(1, lease!, 'returned');
    }
    book.later(2 * DOUBTED_MS);
    expect(book.status()).toMatchObject({ setAside: [], open: 1 });
    const lease = book.acquire(1)!;
    expect(numberOf(lease)).toBe(0);
    book.release(1, lease, 'finished');
    expect(book.status().finished).toBe(1);
  });

  it('keep the range back while they may be as many failures as set it aside', () => {
    const book = opened();
    const [, second] = stall(book, 1, 2, 3);
    expect(book.status().setAside).toEqual([]);
    expect(numberOf(book.acquire(4))).toBe(1);
    book.release(2, second!, 'returned');
    expect(numberOf(book.acquire(5))).toBe(0);
  });

  it('are failures when their workers stay silent: a batch that stalls them is set aside', () => {
    const book = opened();
    stall(book, 1, 2, 3);
    book.later(DOUBTED_MS);
    expect(book.status().setAside).toMatchObject([{ number: 0, batch: 0, attempts: 3, code: 'TIMEOUT' }]);
    expect(book.events.filter((name) => name === 'range.lost')).toHaveLength(3);
  });

  it('are failures when their workers are gone, whoever ends them', () => {
    const book = opened();
    stall(book, 1, 2, 3);
    for (const worker of [1, 2, 3]) book.closed(worker);
    book.later(POLICY.reconnectMs + 1);
    expect(book.status().setAside).toMatchObject([{ number: 0, attempts: 3 }]);
  });

  it('are failures when their workers say later that the batch has failed', () => {
    const book = opened();
    for (const worker of [1, 2, 3]) {
      const [lease] = stall(book, worker);
      const failed = { batch: 0, code: 'BAD_DATA', message: 'line 7' } as const;
      book.release(worker, lease!, 'failed', failed);
      // The question was repeated.
      book.release(worker, lease!, 'failed', failed);
    }
    expect(book.status().setAside).toMatchObject([{ number: 0, attempts: 3, code: 'BAD_DATA' }]);
  });

  it('are no failures when another worker gets through the batch, as when machines have vanished', () => {
    const book = opened();
    stall(book, 1, 2);
    const lease = book.acquire(3)!;
    book.report(3, lease, 1);
    book.later(POLICY.leaseMs - 1);
    book.report(3, lease, 1);
    for (const worker of [1, 2]) book.closed(worker);
    book.later(POLICY.leaseMs - 1);
    book.report(3, lease, 1);
    book.release(3, lease, 'failed', { batch: 1, done: 1 });
    const again = book.acquire(3)!;
    expect(again).toMatchObject({ range: { number: 0 }, done: 1 });
    book.release(3, again, 'finished');
    expect(book.status()).toMatchObject({ finished: 1, setAside: [] });
  });

  it('of batches that take longer than a lease cost no progress: what is durable is believed', () => {
    const book = opened();
    for (let batch = 0; batch < 8; batch++) {
      const [lease] = stall(book, 1);
      expect(lease!.done).toBe(batch);
      book.release(1, lease!, 'returned', { done: batch + 1, begun: batch + 1 });
    }
    expect(book.status().setAside).toEqual([]);
  });

  it('do not go on for ever at one batch', () => {
    const book = opened();
    const most = 100;
    let rounds = 0;
    while (book.status().setAside.length === 0 && rounds++ < most) {
      const [lease] = stall(book, 1);
      book.release(1, lease!, 'returned');
    }
    expect(rounds).toBeLessThan(most);
  });

  it('are forgotten with a restart of the scheduler: the range is tried again', () => {
    const book = opened();
    stall(book, 1, 2, 3);
    book.crash();
    expect(numberOf(book.acquire(4))).toBe(0);
  });
});
