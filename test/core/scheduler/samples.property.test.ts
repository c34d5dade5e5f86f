/**
 * Every batch of every range is applied exactly once at every shard it touches, or its range is set aside and
 * named: under random deaths, expiries, lost messages, restarts of the scheduler, and lost workers that push
 * on. Shards are played by the rule that owners follow: of the numbers of a client the next one is applied,
 * older ones are not, later ones are a gap.
 */
import { expect, test } from 'vitest';
import { splitMix } from '../../../src/core/scheduler/samples/ranges.js';
import { rangeCount } from '../../../src/protocol/dataset-rules.js';
import type { MessageOf } from '../../../src/protocol/messages.js';
import type { DatasetSpec, SampleRange } from '../../../src/protocol/samples.js';
import { Book, FOLLOWED, POLICY, SPEC } from './book.js';

const SHARDS = 3;
const WORKERS = 4;
/** The batches of a range depend on where it is, not on who reads it or when. */
const batchesOf = (file: number, begin: number) => 2 + ((file * 7 + begin) % 5);
const samplesOf = (file: number, begin: number) => batchesOf(file, begin) * 4 - 1;
const touches = (begin: number, batch: number, shard: number) =>
  (Math.floor(begin / 40) + batch * 5 + shard) % 3 !== 0;

interface Shard {
  /** Session -> last number, and the batches that were applied, in order. */
  last: Map<number, number>;
  applied: Map<number, number[]>;
}

interface Work {
  lease: MessageOf<'acquired'>;
  /** The batch that comes next, and whether its push is under way. */
  next: number;
  begun: boolean;
}

class Worker {
  work: Work | undefined;
  waiting: number | undefined;
  finished = false;
}

class Story {
  readonly book: Book;
  readonly shards: Shard[] = Array.from({ length: SHARDS }, () => ({ last: new Map(), applied: new Map() }));
  readonly sessions = new Map<number, MessageOf<'acquired'>>();
  private workers = new Map<number, Worker>();
  private readonly zombies: { id: number; work: Work }[] = [];
  private readonly random: () => number;
  private nextWorker = 1;
  private nextRequest = 1_000_000;

  /** Bytes of each growing file that have been written, and that a worker has seen. */
  readonly written: number[];

  constructor(
    seed: number,
    private readonly spec: DatasetSpec = SPEC,
  ) {
    this.random = splitMix(seed);
    this.written = spec.files.map(() => 0);
    this.book = new Book(POLICY, true);
    this.book.tell(0, { t: 'openDataset', id: 1, name: 'd', spec });
    this.book.save();
    for (let i = 0; i < WORKERS; i++) this.workers.set(this.nextWorker++, new Worker());
  }

  private below(n: number): number {
    return this.random() % n;
  }

  private pick<T>(list: readonly T[]): T | undefined {
    return list[this.below(Math.max(1, list.length))];
  }

  /** Pushes batch `index` of a range to some or all shards that it touches; true: it is everywhere. */
  private push({ lease }: Work, index: number, whole: boolean): boolean {
    const { begin } = lease.range!;
    for (const [s, shard] of this.shards.entries()) {
      if (!touches(begin, index, s)) continue;
      if (!whole && this.below(2) === 0) return false;
      let number = 0;
      for (let batch = 0; batch <= index; batch++) if (touches(begin, batch, s)) number++;
      const last = shard.last.get(lease.session) ?? 0;
      expect(number, 'a gap: a batch before this one was never applied').toBeLessThanOrEqual(last + 1);
      if (number <= last) continue;
      shard.last.set(lease.session, number);
      const applied = shard.applied.get(lease.session);
      if (applied) applied.push(index);
      else shard.applied.set(lease.session, [index]);
    }
    return true;
  }

  private act(id: number, worker: Worker): void {
    const { book } = this;
    if (worker.finished) return;
    if (!worker.work) {
      worker.waiting ??= this.nextRequest++;
      book.acquire(id, 0, worker.waiting);
      const lease = book.answer(id, 'acquired', worker.waiting);
      if (!lease) return;
      worker.waiting = undefined;
      if (!lease.range) worker.finished = true;
      else {
        this.sessions.set(lease.session, lease);
        worker.work = { lease, next: lease.done, begun: false };
      }
      return;
    }
    const { work } = worker;
    if (book.lostTo(id).includes(work.lease.range!.number) && this.below(2) === 0) {
      worker.work = undefined;
      return;
    }
    const { file, begin } = work.lease.range!;
    if (work.next === batchesOf(file, begin)) {
      book.release(id, work.lease, 'finished', { samples: samplesOf(file, begin), done: work.next });
      worker.work = undefined;
      return;
    }
    const state = { done: work.next, begun: work.next + Number(work.begun) };
    if (this.below(60) === 0) {
      book.release(id, work.lease, 'failed', { batch: work.next, ...state });
      worker.work = undefined;
      return;
    }
    if (this.below(25) === 0) {
      book.release(id, work.lease, 'returned', state);
      worker.work = undefined;
      return;
    }
    work.begun = this.below(3) === 0;
    if (!this.push(work, work.next, !work.begun)) work.begun = true;
    else {
      work.next++;
      work.begun = false;
    }
    // A report may get lost.
    if (this.below(3) > 0) book.report(id, work.lease, work.next, work.next + Number(work.begun));
  }

  /** Somebody tells of the files, perhaps what was true a while ago. */
  private grow(id: number): void {
    const file = this.below(this.written.length);
    const before = [...this.written];
    this.written[file] = this.written[file]! + 1 + this.below(90);
    this.extend(id, this.below(3) === 0 ? before : this.written);
  }

  private extend(id: number, sizes: readonly number[]): void {
    this.book.tell(id, { t: 'extendDataset', id: this.nextRequest++, name: 'd', sizes: [...sizes] });
  }

  /** Nobody works or waits for what there is. */
  get idle(): boolean {
    return [...this.workers.values()].every(({ work, waiting }) => !work && waiting !== undefined);
  }

  private die(id: number, worker: Worker): void {
    if (worker.work) {
      const { file, begin } = worker.work.lease.range!;
      if (worker.work.next < batchesOf(file, begin)) this.push(worker.work, worker.work.next, false);
      if (this.below(2) === 0) this.zombies.push({ id, work: worker.work });
    }
    this.workers.delete(id);
    this.book.closed(id);
    this.workers.set(this.nextWorker++, new Worker());
  }

  /** A worker that was given up, and does not know, goes on where it was. */
  private haunt({ work }: { work: Work }): void {
    const { file, begin } = work.lease.range!;
    // The session of a finished range has ended: nothing is applied under it.
    if (!this.book.openSessions.includes(work.lease.session)) return;
    if (work.next < batchesOf(file, begin)) this.push(work, work.next++, true);
  }

  run(steps: number): void {
    const { book } = this;
    for (let step = 0; step < steps; step++) {
      const [id, worker] = this.pick([...this.workers])!;
      const dice = this.below(200);
      const zombie = this.pick(this.zombies);
      if (dice < 3) this.die(id, worker);
      else if (dice < 5) book.crash();
      else if (dice < 10) book.later(this.below(700));
      else if (dice < 20 && zombie) this.haunt(zombie);
      else if (dice < 30 && this.spec.follow) this.grow(id);
      else this.act(id, worker);
      if (this.below(3) > 0) book.save();
    }
    // Now everything goes well.
    for (let turn = 0; turn < 10_000; turn++) {
      if (this.spec.follow) {
        this.extend(0, this.written);
        const { ranges, finished, setAside } = book.settled();
        if (this.idle && ranges === finished + setAside.length) return;
      }
      const busy = [...this.workers].filter(([, worker]) => !worker.finished);
      if (busy.length === 0) return;
      for (const [id, worker] of busy) this.act(id, worker);
      book.save();
      book.later(60);
    }
    throw new Error('the data set is never complete');
  }
}

/**
 * Every batch of every range at every shard, once and in order; returns the samples of the finished ranges
 * per epoch.
 */
function checkShards(story: Story): number[] {
  const aside = new Set(story.book.status().setAside.map(({ number }) => number));
  const finished: number[] = [];
  // A range has had one session at most that was told and durable; each says what became of its batches.
  const byNumber = new Map([...story.sessions.values()].map((lease) => [lease.range!.number, lease]));
  expect(byNumber.size).toBe(story.sessions.size);
  for (const [number, lease] of byNumber) {
    const { file, begin, epoch } = lease.range!;
    for (const [s, shard] of story.shards.entries()) {
      const applied = shard.applied.get(lease.session) ?? [];
      const all = Array.from({ length: batchesOf(file, begin) }, (_, batch) => batch);
      const wanted = all.filter((batch) => touches(begin, batch, s));
      if (aside.has(number)) expect(applied).toEqual(wanted.slice(0, applied.length));
      else expect([number, s, applied]).toEqual([number, s, wanted]);
    }
    if (!aside.has(number)) finished[epoch] = (finished[epoch] ?? 0) + samplesOf(file, begin);
  }
  return finished;
}

test.each(Array.from({ length: 60 }, (_, seed) => seed))('history %i', (seed) => {
  const story = new Story(seed);
  story.run(800);
  const status = story.book.settled();
  expect(status.complete).toBe(true);
  expect(status.finished + status.setAside.length).toBe(SPEC.epochs * rangeCount(SPEC));
  expect(status.samples).toEqual(checkShards(story));
});

test.each(Array.from({ length: 60 }, (_, seed) => seed))('history %i of files that grow', (seed) => {
  const story = new Story(seed, FOLLOWED);
  story.run(800);
  const status = story.book.settled();
  expect(status).toMatchObject({ complete: false, open: 0 });
  expect(status.samples).toEqual(checkShards(story));
  // The ranges follow each other, from the first byte to the last one that was written.
  const given = new Map(status.setAside.map((range) => [range.number, range as SampleRange]));
  for (const { range } of story.sessions.values()) given.set(range!.number, range!);
  expect(given.size).toBe(status.ranges);
  for (const [file, size] of story.written.entries()) {
    const own = [...given.values()].filter((range) => range.file === file).sort((a, b) => a.begin - b.begin);
    expect(own.map(({ begin }) => begin)).toEqual([0, ...own.slice(0, -1).map(({ end }) => end)]);
    expect(own.at(-1)?.end).toBe(size);
  }
});
