/** The batches of a worker: what it takes, what it skips, and what it says of every range in the end. */
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import type { Outcome, RangeLease } from '../../../src/library/client/dataset.js';
import { RangeFeed, type RangeSource, type Sequence } from '../../../src/training/loop/feed.js';
import { createTables, train } from '../../../src/training/loop/loop.js';
import type { Batch, Model, PushUpdate } from '../../../src/training/models/trainer.js';
import { randomBatch } from '../models/rows.js';
import { FakeStore, plainHelpers as helpers } from './fake-store.js';

const BATCHES = 5;

/** The scheduler: a list of leases; when it is empty the next one who asks waits for `give`. */
class FakeRanges implements RangeSource {
  readonly released: [number, Outcome][] = [];
  readonly reports: [number, number, number][] = [];
  asked = 0;
  private give: ((lease: RangeLease | undefined) => void) | undefined;
  onRelease: () => void = () => {};

  private clock = 0;
  private barrier: { begun: number; resolve: (until: number) => void } | undefined;

  constructor(private readonly leases: (RangeLease | undefined)[]) {}

  acquire(): Promise<RangeLease | undefined> {
    this.asked += 1;
    if (this.leases.length > 0) return Promise.resolve(this.leases.shift());
    return new Promise((resolve) => {
      this.give = resolve;
    });
  }

  /** All is done: whoever waits is told. */
  end(): void {
    this.leases.push(undefined);
    this.give?.(undefined);
  }

  /** Back in the queue. */
  again(lease: RangeLease): void {
    this.leases.unshift(lease);
  }

  report({ range }: RangeLease, done: number, begun: number, clock: number): void {
    this.reports.push([range.number, done, begun]);
    this.clock = clock;
    this.lift();
  }

  async release({ range }: RangeLease, outcome: Outcome): Promise<void> {
    this.released.push([range.number, outcome]);
    this.onRelease();
  }

  /** A barrier of one: the next batch may begin when those before it are durable. */
  advance(begun: number): Promise<number> {
    return new Promise((resolve) => {
      this.barrier = { begun, resolve };
      this.lift();
    });
  }

  private lift(): void {
    if (this.barrier && this.barrier.begun <= this.clock) this.barrier.resolve(this.clock);
  }
}

const lease = (number: number, done = 0, begun = done): RangeLease => ({
  ...{ id: 100 + number, session: 1000 + number, done, begun, leaseMs: 60_000 },
  range: { number, epoch: 0, file: 0, begin: number * 100, end: number * 100 + 100 },
});

function toyModel(fail: (batch: Batch) => void = () => {}): Model {
  const table = {
    name: 't',
    dim: 1,
    optimizer: { kind: 'sgd', lr: 0.1 },
    initializer: { kind: 'zeros' },
  } as const;
  return {
    tables: [table],
    tensors: [],
    keys: ({ keys }) => [keys],
    async step(batch, [rows]) {
      fail(batch);
      return { loss: 0.5, rowGrads: [rows!.map(() => 1)], denseGrads: [] };
    },
    predict: async ({ labels }) => labels,
  };
}

interface Run {
  feed: RangeFeed;
  ranges: FakeRanges;
  /** Events of each session: "skip", "push". */
  log: string[];
  train(): ReturnType<typeof train>;
}

async function run(
  ranges: FakeRanges,
  model = toyModel(),
  push?: (batch: string) => Promise<void>,
  bounded = false,
): Promise<Run> {
  const store = new FakeStore();
  await createTables(model, store, 1, helpers);
  const log: string[] = [];
  const feed: RangeFeed = new RangeFeed({
    ranges,
    bounded,
    open: (session): Sequence => ({
      skip: () => log.push(`skip ${session - 1000}`),
      push: async (updates: PushUpdate[]) => {
        log.push(`push ${session - 1000}`);
        await push?.(`${session - 1000}`);
        await store.push(updates);
      },
      close: () => log.push(`close ${session - 1000}`),
    }),
    read: async function* ({ range }) {
      for (let i = 0; i < BATCHES; i++) yield randomBatch(4, range.number * 10 + i);
    },
    touched: () => [],
  });
  const through = { createTables: async () => {}, pull: store.pull.bind(store) };
  return {
    ...{ feed, ranges, log },
    train: () =>
      train({
        model,
        helpers,
        batches: feed,
        overlap: !bounded,
        store: { ...through, push: (updates, batch) => feed.push(updates, batch) },
      }),
  };
}

const count = (log: string[], what: string) => log.filter((entry) => entry === what).length;

describe('a lease', () => {
  test('is kept while the way to its first batch is read, and not when nothing is read', async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const ranges = new FakeRanges([lease(0)]);
    let onRead = () => {};
    const feed = new RangeFeed({
      ranges,
      bounded: false,
      open: () => ({ skip: () => {}, push: async () => {}, close: () => {} }),
      read: async function* (_, reading) {
        onRead = reading;
        await new Promise(() => {});
      },
      touched: () => [],
    });
    void feed[Symbol.asyncIterator]().next();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(ranges.reports).toEqual([]);
    onRead();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(ranges.reports).toEqual([[0, 0, 0]]);
    await feed.close();
  });
});

describe('a range', () => {
  test('is finished when every batch is durable, and the next one is taken', async () => {
    const { feed, ranges, log, train } = await run(new FakeRanges([lease(0), lease(1), undefined]));
    expect(await train()).toMatchObject({ batches: 10, samples: 40 });
    await feed.close();
    const outcome = { outcome: 'finished', done: 5, begun: 5, samples: 20, redone: 0 };
    expect(ranges.released).toEqual([
      [0, outcome],
      [1, outcome],
    ]);
    expect([count(log, 'push 0'), count(log, 'push 1'), count(log, 'skip 0')]).toEqual([5, 5, 0]);
  });

  test('that somebody began goes on behind what is durable; what was begun counts as redone', async () => {
    const { feed, ranges, log, train } = await run(new FakeRanges([lease(0, 2, 4), undefined]));
    expect(await train()).toMatchObject({ batches: 3 });
    await feed.close();
    expect([count(log, 'skip 0'), count(log, 'push 0')]).toEqual([2, 3]);
    expect(ranges.released).toEqual([
      [0, { outcome: 'finished', done: 5, begun: 5, samples: 20, redone: 8 }],
    ]);
  });

  test('the last batch of a range is trained while the next range is asked for', async () => {
    const ranges = new FakeRanges([lease(0)]);
    ranges.onRelease = () => ranges.end();
    const { feed, train } = await run(ranges);
    expect(await train()).toMatchObject({ batches: 5 });
    await feed.close();
    expect(ranges.released.map(([, { outcome }]) => outcome)).toEqual(['finished']);
  });

  test('is reported on before and after its pushes', async () => {
    const { feed, ranges, train } = await run(new FakeRanges([lease(0), undefined]));
    await train();
    await feed.close();
    expect(ranges.reports[0]).toEqual([0, 0, 1]);
    expect(ranges.reports.at(-1)).toEqual([0, 5, 5]);
  });

  test('that was lost is left: nothing more is begun, the next one is taken', async () => {
    const ranges = new FakeRanges([lease(0), lease(1), undefined]);
    let pushes = 0;
    const { feed, log, train } = await run(ranges, toyModel(), async (range) => {
      if (range === '0' && ++pushes === 2) feed.lost(0, 100);
    });
    await train();
    await feed.close();
    expect(count(log, 'push 0')).toBeLessThan(5);
    expect(ranges.released.at(-1)).toMatchObject([1, { outcome: 'finished' }]);
  });

  test('whose session ended, because another worker was quicker, is no failure', async () => {
    const ranges = new FakeRanges([lease(0), lease(1), undefined]);
    const { feed, train } = await run(ranges, toyModel(), async (range) => {
      if (range === '0') throw new KintsugiError('SESSION_EXPIRED', 'over');
    });
    await train();
    await feed.close();
    expect(ranges.released.find(([number]) => number === 1)?.[1]).toMatchObject({ outcome: 'finished' });
    expect(ranges.released.some(([number, { outcome }]) => number === 0 && outcome === 'finished')).toBe(
      false,
    );
  });
});

describe('the end', () => {
  test('when stopped, what was begun is trained and the rest handed back', async () => {
    const ranges = new FakeRanges([lease(0), lease(1), undefined]);
    let pushes = 0;
    const { feed, log, train } = await run(ranges, toyModel(), async () => {
      if (++pushes === 2) feed.stop();
    });
    const { batches } = await train();
    await feed.close();
    expect(batches).toBeLessThan(5);
    expect(count(log, 'push 0')).toBe(batches);
    expect(ranges.released).toMatchObject([[0, { outcome: 'returned', done: batches, begun: batches }]]);
  });

  test('when stopped while it waits for a range, one that comes too late goes back', async () => {
    const ranges = new FakeRanges([]);
    const { feed, train } = await run(ranges);
    const training = train();
    feed.stop();
    expect(await training).toMatchObject({ batches: 0 });
    ranges.again(lease(3));
    await feed.close();
    expect(ranges.released).toEqual([]);
  });
});

test.each([false, true])('nothing is kept of ranges that are over (bounded: %s)', async (bounded) => {
  const reactions = new Map<Promise<unknown>, number>();
  const { then } = Promise.prototype;
  // biome-ignore lint/suspicious/noThenProperty: this one counts who waits for what
  Promise.prototype.then = function (this: Promise<unknown>, ...callbacks) {
    reactions.set(this, (reactions.get(this) ?? 0) + 1);
    return then.apply(this, callbacks) as never;
  };
  onTestFinished(() => {
    // biome-ignore lint/suspicious/noThenProperty: the one of before
    Promise.prototype.then = then;
  });
  const number = 100;
  const { feed, train } = await run(
    new FakeRanges([...Array.from({ length: number }, (_, i) => lease(i)), undefined]),
    toyModel(),
    undefined,
    bounded,
  );
  await train();
  await feed.close();
  // A promise keeps every reaction until it settles: one that many wait on would grow with the ranges.
  expect(Math.max(...reactions.values())).toBeLessThan(number / 10);
});

describe('failures', () => {
  /** Fails at one batch (by its first value) until told otherwise. */
  function failing(range: number, index: number, times: number) {
    const bad = randomBatch(4, range * 10 + index).dense[0];
    let left = times;
    return toyModel(({ dense }) => {
      if (dense[0] === bad && left-- > 0) throw new KintsugiError('MODEL', 'not this one');
    });
  }

  test('of one batch hand its range back with the batch named, and the worker goes on', async () => {
    const ranges = new FakeRanges([lease(0), lease(1)]);
    const { feed, train } = await run(ranges, failing(0, 3, 1));
    const error = await train().catch((thrown: unknown) => thrown);
    expect(await feed.failed(error)).toBe(true);
    const failed = ranges.released.find(([, { outcome }]) => outcome === 'failed');
    expect(failed).toMatchObject([0, { batch: 3, done: 3, code: 'MODEL', message: 'not this one' }]);
    ranges.again(lease(0, 3, 4));
    ranges.onRelease = () =>
      ranges.released.filter(([, { outcome }]) => outcome === 'finished').length === 2 && ranges.end();
    // A range that had been taken ahead was handed back as well.
    if (ranges.released.some(([number]) => number === 1)) ranges.again(lease(1));
    await train();
    await feed.close();
    const finished = ranges.released
      .filter(([, { outcome }]) => outcome === 'finished')
      .map(([number]) => number);
    expect(finished.sort()).toEqual([0, 1]);
  });

  test('do not count as batches that others have to wait for', async () => {
    const ranges = new FakeRanges([lease(0), lease(0, 3, 4), undefined]);
    const { feed, train } = await run(ranges, failing(0, 3, 1), undefined, true);
    const error = await train().catch((thrown: unknown) => thrown);
    expect(await feed.failed(error)).toBe(true);
    expect(await train()).toMatchObject({ batches: 2 });
    await feed.close();
    expect(ranges.released.map(([, { outcome }]) => outcome)).toEqual(['failed', 'finished']);
  });

  test('before anything was trained end the worker, and so do failures of the job', async () => {
    const first = await run(new FakeRanges([lease(0), undefined]), failing(0, 0, 9));
    const error = await first.train().catch((thrown: unknown) => thrown);
    expect(await first.feed.failed(error)).toBe(false);
    const lost = await run(new FakeRanges([lease(0), undefined]), toyModel(), async () => {
      throw new KintsugiError('UNRECOVERABLE', 'gone');
    });
    const gone = await lost.train().catch((thrown: unknown) => thrown);
    expect(await lost.feed.failed(gone)).toBe(false);
    await lost.feed.close();
    expect(lost.ranges.released).toMatchObject([[0, { outcome: 'returned' }]]);
  });
});
