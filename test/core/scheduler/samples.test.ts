/** Samples are handed out by leases: losses, restarts and failures, decided step by step. */
import { describe, expect, it } from 'vitest';
import { RangePlan } from '../../../src/core/scheduler/samples/ranges.js';
import { rangeCount } from '../../../src/protocol/dataset-rules.js';
import type { MessageOf } from '../../../src/protocol/messages.js';
import type { DatasetSpec } from '../../../src/protocol/samples.js';
import { Book, FOLLOWED, POLICY, SPEC } from './book.js';

const numberOf = (acquired: MessageOf<'acquired'> | undefined) => acquired?.range?.number;

describe('the plan of a data set', () => {
  it('covers every byte of every file once in each epoch', () => {
    for (const shuffle of [false, true]) {
      const plan = new RangePlan({ ...SPEC, shuffle, seed: 7 });
      expect(plan.total).toBe(2 * rangeCount(SPEC));
      for (const epoch of [0, 1]) {
        const ranges = Array.from({ length: 5 }, (_, i) => plan.at(epoch * 5 + i));
        expect(ranges.every((range) => range.epoch === epoch)).toBe(true);
        const sorted = ranges.map(({ file, begin, end }) => [file, begin, end]).sort();
        expect(sorted).toEqual([
          [0, 0, 40],
          [0, 40, 80],
          [0, 80, 100],
          [1, 0, 40],
          [1, 40, 80],
        ]);
      }
    }
  });

  it('leaves out empty files', () => {
    const sizes = [0, 10, 0, 0, 25, 0];
    const files = sizes.map((size, i) => ({ name: `f${i}`, size, rangeBytes: 10 }));
    const plan = new RangePlan({ ...SPEC, files });
    const ranges = Array.from({ length: plan.total }, (_, i) => plan.at(i));
    const epoch = [[1, 0, 10], ...[0, 10, 20].map((begin) => [4, begin, Math.min(25, begin + 10)])];
    expect(ranges.map(({ file, begin, end }) => [file, begin, end])).toEqual([...epoch, ...epoch]);
  });

  it('takes the ranges in the order of the files, or in one that seed and epoch choose', () => {
    const files = [{ name: 'a', size: 1000, rangeBytes: 10 }];
    const order = (spec: Partial<DatasetSpec>, epoch: number) => {
      const plan = new RangePlan({ ...SPEC, files, ...spec });
      return Array.from({ length: 100 }, (_, i) => plan.at(epoch * 100 + i).begin / 10);
    };
    const sorted = Array.from({ length: 100 }, (_, i) => i);
    expect(order({}, 0)).toEqual(sorted);
    const shuffled = { shuffle: true, seed: 3 };
    expect(order(shuffled, 0)).toEqual(order(shuffled, 0));
    expect(order(shuffled, 0)).not.toEqual(sorted);
    expect(order(shuffled, 0)).not.toEqual(order(shuffled, 1));
    expect(order(shuffled, 0)).not.toEqual(order({ shuffle: true, seed: 4 }, 0));
    expect([...order(shuffled, 1)].sort((a, b) => a - b)).toEqual(sorted);
  });
});

describe('a data set', () => {
  it('is registered by the first worker; others must mean the same', () => {
    const book = new Book();
    expect(book.open(1).spec).toEqual(SPEC);
    expect(
      book.open(2, { ...SPEC, files: SPEC.files.map((file) => ({ ...file, rangeBytes: 7 })) }).spec,
    ).toEqual(SPEC);
    for (const other of [{ epochs: 3 }, { batch: 5 }, { files: SPEC.files.slice(1) }, { staleness: 3 }])
      expect(book.open(3, { ...SPEC, ...other })).toMatchObject({ code: 'BAD_ARGUMENT' });
  });

  it('has the schema that it began with; who tells none may go on', () => {
    const book = new Book();
    const schema = { label: '"y"', dense: 'none', sparse: '["a"]', weight: 'none', time: 'none' };
    const begun = { ...SPEC, schema };
    expect(book.open(1, begun).spec).toEqual(begun);
    expect(book.open(2, { ...SPEC, schema: { ...schema } }).spec).toEqual(begun);
    expect(book.open(2, SPEC).spec).toEqual(begun);
    expect(book.open(2, { ...SPEC, schema: { label: '"y"' } }).spec).toEqual(begun);
    for (const part of ['label', 'dense', 'sparse', 'weight', 'time'] as const)
      expect(book.open(3, { ...SPEC, schema: { ...schema, [part]: '"z"' } })).toMatchObject({
        code: 'BAD_ARGUMENT',
        message: expect.stringContaining(`has a schema with ${part} ${schema[part]}, not "z": give that`),
      });
    // A later scheduler knows it from the store.
    book.crash();
    expect(book.open(3, { ...SPEC, schema: { ...schema, label: '"z"' } }).code).toBe('BAD_ARGUMENT');
    expect(book.open(3, begun).spec).toEqual(begun);
  });

  it('has the files that it began with, also where others have their names and sizes', () => {
    const book = new Book();
    const marked = (...marks: (string | undefined)[]) => {
      const files = SPEC.files.map((file, i) => ({ ...file, ...(marks[i] && { mark: marks[i] }) }));
      return { ...SPEC, files };
    };
    expect(book.open(1, marked('x', 'y')).spec).toEqual(marked('x', 'y'));
    for (const same of [marked('x', 'y'), marked('x'), SPEC])
      expect(book.open(2, same).spec).toEqual(marked('x', 'y'));
    for (const other of [marked('y', 'x'), marked(undefined, 'z')])
      expect(book.open(2, other)).toMatchObject({
        code: 'BAD_ARGUMENT',
        message: expect.stringContaining('or another order of them: give those of the run'),
      });
    book.crash();
    expect(book.open(3, marked('y', 'x')).code).toBe('BAD_ARGUMENT');
  });

  it('that was begun without a schema goes on with any', () => {
    const book = new Book();
    book.open(1);
    for (const label of ['"y"', '"z"'])
      expect(book.open(2, { ...SPEC, schema: { label } }).spec).toEqual(SPEC);
  });

  it('is kept without what a message has besides', () => {
    const book = new Book();
    const more = { x: 1n << 63n } as object;
    const files = SPEC.files.map((file) => ({ ...file, ...more }));
    expect(book.open(1, { ...SPEC, ...more, files }).spec).toEqual(SPEC);
  });

  it('is refused when all of them together take too much', () => {
    const book = new Book();
    const wide = { ...SPEC, files: [{ name: 'a', size: 1 << 20, rangeBytes: 1 }], epochs: 1 << 20 };
    const codes = Array.from({ length: 20 }, (_, i) => book.open(1, wide, `wide ${i}`).code);
    expect(codes).toEqual(Array.from({ length: 20 }, (_, i) => (i < 7 ? undefined : 'LIMIT')));
    expect(book.open(1, wide, 'wide 0').code).toBeUndefined();
    expect(book.open(1).code).toBeUndefined();
  });

  it('that cannot be is refused', () => {
    const book = new Book();
    const wide = [{ name: 'a', size: 2 ** 40, rangeBytes: 1 }];
    for (const wrong of [{ files: [] }, { batch: 0 }, { epochs: 0 }, { epochs: 2 ** 30 }, { files: wide }])
      expect(book.open(1, { ...SPEC, ...wrong })).toMatchObject({ code: 'BAD_ARGUMENT' });
  });
});

describe('leases', () => {
  it('are given in order, each under a session of its own, and are durable before they are told', () => {
    const book = new Book(POLICY, true);
    book.tell(1, { t: 'openDataset', id: 1, name: 'd', spec: SPEC });
    expect(book.sent).toEqual([]);
    book.save();
    const first = book.acquire(1, 0, 50);
    expect(first).toBeUndefined();
    book.save();
    expect(book.given(1)).toMatchObject({ id: 50, range: { number: 0 }, done: 0, begun: 0 });
    book.acquire(2, 0, 51);
    book.save();
    expect(numberOf(book.given(2))).toBe(1);
    expect(book.given(1)!.session).not.toBe(book.given(2)!.session);
  });

  it('asked for again, because the answer was lost, are the same', () => {
    const book = new Book();
    book.open(1);
    const first = book.acquire(1, 0, 50);
    expect(book.acquire(1, 0, 50)).toEqual(first);
    expect(numberOf(book.acquire(1, 0, 51))).toBe(1);
  });

  it('are all finished in the end, and whoever waits is told', () => {
    const book = new Book();
    book.open(1);
    const sessions: number[] = [];
    for (let number = 0; number < 9; number++) {
      const lease = book.acquire(1)!;
      expect(numberOf(lease)).toBe(number);
      sessions.push(lease.session);
      book.release(1, lease, 'finished');
    }
    const last = book.acquire(1)!;
    expect(book.acquire(2, 0, 900)).toBeUndefined();
    book.release(1, last, 'finished', { samples: 3, redone: 2 });
    expect(book.answer(2, 'acquired', 900)).toMatchObject({ session: 0 });
    expect(book.answer(2, 'acquired', 900)?.range).toBeUndefined();
    expect(book.acquire(3)?.range).toBeUndefined();
    const totals = { finished: 10, ranges: 10, open: 0, samples: [50, 43], redone: 2, complete: true };
    expect(book.status()).toMatchObject(totals);
    expect(new Set([...sessions, last.session]).size).toBe(10);
    expect(book.openSessions).toEqual([]);
    expect(book.kept.get('dataset.complete')).toMatchObject({ samples: 93, redone: 2 });
  });

  it('that are handed back are next in the queue, and go on behind what is durable', () => {
    const book = new Book();
    book.open(1);
    const lease = book.acquire(1)!;
    book.acquire(2);
    book.release(1, lease, 'returned', { done: 3, begun: 5 });
    expect(book.acquire(3)).toMatchObject({
      ...{ range: { number: 0 }, session: lease.session, done: 3, begun: 5 },
    });
  });

  it('end when they are not reported on; a late report is told so', () => {
    const book = new Book();
    book.open(1);
    const [slow, quick] = [book.acquire(1)!, book.acquire(2)!];
    book.report(1, slow, 2, 4);
    book.later(900);
    book.report(2, quick, 1);
    book.later(200);
    expect(book.lostTo(1)).toEqual([0]);
    expect(book.lostTo(2)).toEqual([]);
    const next = book.acquire(3)!;
    expect(next).toMatchObject({ range: { number: 0 }, session: slow.session, done: 2, begun: 4 });
    book.report(1, slow, 5);
    expect(book.lostTo(1)).toEqual([0, 0]);
    // The lost worker is believed once, of what is durable, and when it has finished.
    book.release(1, slow, 'returned', { done: 7, begun: 7 });
    book.release(1, slow, 'failed', { batch: 2 });
    expect(book.status()).toMatchObject({ finished: 0, open: 2 });
    book.release(9, { ...slow, session: slow.session + 1 }, 'finished');
    expect(book.status()).toMatchObject({ finished: 0, open: 2 });
    book.release(1, slow, 'finished');
    book.release(3, next, 'finished');
    expect(book.status()).toMatchObject({ finished: 1, samples: [10, 0] });
  });

  it('of a worker that is gone go to who waits, after it had time to reconnect', () => {
    const book = new Book();
    book.open(1);
    for (let i = 0; i < 9; i++) book.release(1, book.acquire(1)!, 'finished');
    const lease = book.acquire(1)!;
    book.report(1, lease, 1);
    expect(book.acquire(2, 0, 900)).toBeUndefined();
    book.closed(1);
    book.later(50);
    book.attached(1);
    book.later(100);
    expect(book.given(2)).toBeUndefined();
    book.closed(1);
    book.later(101);
    expect(book.given(2)).toMatchObject({ id: 900, range: { number: 9 }, done: 1 });
    expect(book.events.filter((name) => name === 'worker.lost')).toHaveLength(1);
  });

  it('survive a restart of the scheduler with what was durable; workers have time to come back', () => {
    const book = new Book();
    book.open(1);
    const [first, second] = [book.acquire(1)!, book.acquire(2)!];
    book.report(1, first, 3);
    book.crash();
    // That report was not durable.
    book.attached(1);
    book.report(1, first, 1);
    book.later(501);
    expect(book.lostTo(1)).toEqual([]);
    expect(book.acquire(3)).toMatchObject({ range: { number: 1 }, session: second.session });
    // Reports become durable after so many.
    book.report(1, first, 5);
    book.crash();
    book.later(501);
    expect(book.acquire(3)).toMatchObject({ range: { number: 0 }, done: 5 });
  });

  it('a range that fails again and again at one batch is set aside and named', () => {
    const book = new Book();
    book.open(1);
    const fail = (batch: number) => {
      const lease = book.acquire(1)!;
      expect(numberOf(lease)).toBe(0);
      book.release(1, lease, 'failed', { batch, code: 'BAD_DATA', message: 'line 7', done: batch });
    };
    fail(1);
    fail(1);
    fail(2);
    fail(2);
    expect(book.status().setAside).toEqual([]);
    fail(2);
    expect(book.status().setAside).toEqual([
      {
        ...{ number: 0, epoch: 0, file: 0, begin: 0, end: 40, fileName: 'a.tsv' },
        ...{ batch: 2, attempts: 3, code: 'BAD_DATA', message: 'line 7' },
      },
    ]);
    expect(numberOf(book.acquire(1))).toBe(1);
    book.crash();
    expect(book.status().setAside).toHaveLength(1);
  });

  it('a batch that kills its workers is set aside, too', () => {
    const book = new Book();
    book.open(1);
    for (const worker of [1, 2, 3]) {
      expect(numberOf(book.acquire(worker))).toBe(0);
      book.closed(worker);
      book.later(101);
    }
    expect(book.status().setAside).toMatchObject([{ number: 0, batch: 0, code: 'TIMEOUT' }]);
  });
});

describe('bounded staleness', () => {
  const bounded = (staleness: number) => {
    const book = new Book();
    book.open(1, { ...SPEC, staleness });
    return book;
  };
  const mayBegin = (book: Book, worker: number, begun: number, id: number) => {
    book.tell(worker, { t: 'advance', id, name: 'd', clock: begun });
    return book.answer(worker, 'advanced', id)?.until;
  };

  it('lets nobody begin more than so many batches ahead of the slowest', () => {
    const book = bounded(2);
    const [fast, slow] = [book.acquire(1)!, book.acquire(2)!];
    expect(mayBegin(book, 1, 0, 800)).toBe(2);
    book.report(1, fast, 2, 3, 2);
    expect(mayBegin(book, 1, 3, 801)).toBeUndefined();
    book.report(2, slow, 1);
    expect(book.answer(1, 'advanced', 801)?.until).toBe(3);
  });

  it('is a barrier at 0', () => {
    const book = bounded(0);
    const [a, b] = [book.acquire(1)!, book.acquire(2)!];
    expect([mayBegin(book, 1, 0, 800), mayBegin(book, 2, 0, 801)]).toEqual([0, 0]);
    book.report(1, a, 1);
    expect(mayBegin(book, 1, 1, 802)).toBeUndefined();
    book.report(2, b, 1);
    expect(book.answer(1, 'advanced', 802)?.until).toBe(1);
  });

  it('does not wait for a worker that died, left or has nothing to do', () => {
    const book = bounded(0);
    const [a, b] = [book.acquire(1)!, book.acquire(2)!];
    book.acquire(3);
    book.report(1, a, 1);
    mayBegin(book, 1, 1, 800);
    book.release(2, b, 'finished');
    expect(book.answer(1, 'advanced', 800)).toBeUndefined();
    book.closed(3);
    expect(book.answer(1, 'advanced', 800)?.until).toBe(1);
  });

  it('takes a worker that joins late for as far as the slowest', () => {
    const book = bounded(1);
    const a = book.acquire(1)!;
    book.report(1, a, 20);
    book.acquire(2);
    expect(mayBegin(book, 1, 21, 800)).toBe(21);
    expect(mayBegin(book, 2, 1, 801)).toBe(1);
    expect(mayBegin(book, 2, 2, 802)).toBeUndefined();
  });
});

describe('files that grow', () => {
  const bytes = (acquired: MessageOf<'acquired'> | undefined) => {
    const { file, begin, end } = acquired?.range ?? {};
    return [file, begin, end];
  };

  it('are handed out as far as they go; who finds nothing waits until somebody tells of more', () => {
    const book = new Book();
    expect(book.open(1, FOLLOWED).spec).toEqual(FOLLOWED);
    expect(book.acquire(1, 0, 50)).toBeUndefined();
    expect(book.extend(1, 100, 0)).toEqual([100, 0]);
    expect(bytes(book.given(1))).toEqual([0, 0, 40]);
    expect(bytes(book.acquire(2))).toEqual([0, 40, 80]);
    expect(book.acquire(3, 0, 51)).toMatchObject({ range: { number: 2, begin: 80, end: 100 } });
    expect(book.acquire(4, 0, 52)).toBeUndefined();
    // A range that was cut stays as it is. The next range begins where the last one ended.
    book.extend(1, 130, 0);
    expect(bytes(book.given(4))).toEqual([0, 100, 130]);
    expect(book.status()).toMatchObject({ ranges: 4, open: 4, complete: false });
  });

  it('are never complete, and the one that most is left of comes first', () => {
    const book = new Book();
    book.open(1, FOLLOWED);
    book.extend(1, 50, 60);
    for (const expected of [
      [1, 0, 40],
      [0, 0, 40],
      [1, 40, 60],
      [0, 40, 50],
    ]) {
      const lease = book.acquire(1)!;
      expect(bytes(lease)).toEqual(expected);
      book.release(1, lease, 'finished');
    }
    expect(book.acquire(1)).toBeUndefined();
    expect(book.status()).toMatchObject({ ranges: 4, finished: 4, samples: [40], complete: false });
    expect(book.events).not.toContain('dataset.complete');
  });

  it('are told of by workers that know less than others', () => {
    const book = new Book();
    book.open(1, FOLLOWED);
    book.extend(1, 40, 10);
    expect(book.extend(2, 30, 20)).toEqual([40, 20]);
    expect(book.status().ranges).toBe(2);
  });

  it('go on after a restart where they were: behind what was handed out, and with what was under way', () => {
    const book = new Book();
    book.open(1, FOLLOWED);
    book.extend(1, 100, 0);
    const [first, second] = [book.acquire(1)!, book.acquire(2)!];
    book.report(1, first, 2, 3);
    book.release(2, second, 'returned', { done: 1, begun: 1 });
    book.crash();
    expect(book.acquire(3)).toMatchObject({ range: second.range, session: second.session, done: 1 });
    expect(bytes(book.acquire(4))).toEqual([0, 80, 100]);
    expect(book.extend(1, 100, 30)).toEqual([100, 30]);
    expect(bytes(book.acquire(5))).toEqual([1, 0, 30]);
    book.later(POLICY.silentMs + 1);
    expect(book.acquire(6)).toMatchObject({ range: first.range, session: first.session });
  });

  it('whose growth was not durable are told of again', () => {
    const book = new Book(POLICY, true);
    book.tell(1, { t: 'openDataset', id: 1, name: 'd', spec: FOLLOWED });
    book.save();
    expect(book.extend(1, 100, 0)).toBeUndefined();
    book.crash();
    expect(book.settled().ranges).toBe(0);
    book.extend(1, 100, 0);
    expect(book.settled().ranges).toBe(3);
  });

  it('are one epoch, begin with nothing, and are not mixed with files that stay as they are', () => {
    const book = new Book();
    for (const wrong of [{ epochs: 2 }, { files: SPEC.files }])
      expect(book.open(1, { ...FOLLOWED, ...wrong })).toMatchObject({ code: 'BAD_ARGUMENT' });
    book.open(1);
    expect(book.open(2, FOLLOWED)).toMatchObject({
      message: 'data set "d" of this job has files that do not grow, not files that grow',
    });
    book.tell(2, { t: 'extendDataset', id: 900, name: 'd', sizes: [1, 2] });
    expect(book.answer(2, 'datasetExtended', 900)).toMatchObject({ code: 'BAD_ARGUMENT', sizes: [] });
  });
});
