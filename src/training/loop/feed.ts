/**
 * The batches of a worker. The feed leases ranges of the data set, reads them, and accounts for every batch
 * until it is durable. In a range that somebody else has begun, it continues behind the last batch that is
 * known to be durable. The batches before are read but not trained, because the numbers of the later pushes
 * depend on them.
 */

import { codeOf, describe, KintsugiError } from '../../common/errors.js';
import { systemLimit } from '../../common/system-errors.js';
import type { Outcome, RangeLease } from '../../library/client/dataset.js';
import { HeldRange, HeldRanges } from '../../library/client/held-ranges.js';
import type { Batch, PushUpdate, RowsToPull } from '../models/trainer.js';
import { Stop } from './stop.js';

/** The part of a data set that the feed uses. */
export interface RangeSource {
  /** Waits for a range; undefined when all are done. `clock`: batches that this worker has made durable */
  acquire(clock: number): Promise<RangeLease | undefined>;
  report(lease: RangeLease, done: number, begun: number, clock: number): void;
  release(lease: RangeLease, outcome: Outcome): Promise<void>;
  /**
   * Waits until a worker that has begun `clock` batches may begin another. Returns the count of begun batches
   * up to which it need not ask again.
   */
  advance(clock: number): Promise<number>;
}

/** Pushes of one range, see sequence.ts. */
export interface Sequence {
  skip(requests: RowsToPull[]): void;
  push(updates: PushUpdate[]): Promise<void>;
  close(): void;
}

export interface FeedOptions {
  ranges: RangeSource;
  open(session: number): Sequence;
  /** `onRead`: to be called as long as reading goes on, also without a batch to give. */
  read(lease: RangeLease, onRead: () => void): AsyncGenerator<Batch, void, undefined>;
  /** The keys that the push of a batch goes to. */
  touched(batch: Batch): RowsToPull[];
  /** Ask before every batch whether others are too far behind. */
  bounded: boolean;
  onRange?: (end: RangeEnd) => void;
}

/** A range that this worker is done with. */
export interface RangeEnd extends Outcome {
  lease: RangeLease;
}

/** A leased range. */
class FeedWork extends HeldRange {
  /** Batches read so far, trained or not. */
  read = 0;
  /** Something was read since the lease was last kept. */
  reading = false;
  /** All batches of the range are read. */
  wholly = false;
  /** No further batch will be read, whether all were or not. */
  over = false;
  /** Batches given to the loop. */
  given: number;
  ended = false;

  constructor(
    lease: RangeLease,
    readonly sequence: Sequence,
  ) {
    super(lease);
    this.given = lease.done;
    this.pushed = lease.done;
  }

  get isFinished(): boolean {
    return this.wholly && this.pending === 0 && this.done >= this.read;
  }
}

interface BatchPlace {
  work: FeedWork;
  index: number;
}

export class RangeFeed implements AsyncIterable<Batch> {
  private readonly works: HeldRanges<FeedWork>;
  private readonly places = new WeakMap<Batch, BatchPlace>();
  private readonly releases = new Set<Promise<void>>();
  private readonly idle = new Set<() => void>();
  /** Which iteration of the batches is the valid one. */
  private pass = 0;
  private asked: Promise<RangeLease | undefined> | undefined;
  private readonly end = new Stop();
  private failure: { work: FeedWork; index: number } | undefined;
  /** Set when asking for a range failed. Then no batch is to blame. */
  private broken = false;
  private releaseFailure: { error: unknown } | undefined;
  /** Batches that were given to the loop and are not settled yet, of all ranges. */
  private open = 0;
  private allowed = -1;

  constructor(private readonly options: FeedOptions) {
    this.works = new HeldRanges(options.ranges, () => this.keepLeases());
  }

  /**
   * Takes no further range and no further batch. Batches that the loop has are trained, and `close` hands the
   * rest back.
   */
  stop(): void {
    this.end.stop();
  }

  /** The scheduler gave the range to another worker. No further batch of it begins here. */
  lost(range: number, lease: number): void {
    this.works.lost(range, lease);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Batch, void, undefined> {
    const pass = ++this.pass;
    while (!this.end.isStopped && pass === this.pass) {
      if (this.releaseFailure) throw this.releaseFailure.error;
      const lease = await this.acquire(pass);
      if (!lease) return;
      yield* this.batches(this.begin(lease));
    }
  }

  /**
   * An iteration that was given up may still be waiting for a range. Its answer goes to the next iteration.
   */
  private async acquire(pass: number): Promise<RangeLease | undefined> {
    this.asked ??= this.options.ranges.acquire(this.works.durable);
    this.asked.catch(() => {
      this.broken = true;
    });
    const lease = await this.end.orStopped(this.asked);
    if (pass !== this.pass || this.end.isStopped) return undefined;
    this.asked = undefined;
    return lease;
  }

  private begin(lease: RangeLease): FeedWork {
    return this.works.add(new FeedWork(lease, this.options.open(lease.session)));
  }

  private async *batches(work: FeedWork): AsyncGenerator<Batch, void, undefined> {
    const { lease, sequence } = work;
    // Another worker does the rest: the one that holds the range now, or after `stop` the next one.
    const isOver = () => work.lost || work.ended || this.end.isStopped;
    try {
      const onRead = () => {
        work.reading = true;
      };
      for await (const batch of this.options.read(lease, onRead)) {
        const index = work.read;
        if (index < lease.done) sequence.skip(this.options.touched(batch));
        else {
          if (this.options.bounded) await this.mayBegin();
          if (isOver()) break;
        }
        work.read += 1;
        work.count(index, batch.size);
        if (index < lease.done) continue;
        work.given += 1;
        this.open += 1;
        this.places.set(batch, { work, index });
        yield batch;
      }
      work.wholly = !isOver();
    } catch (error) {
      if (!work.ended) this.failure = { work, index: work.read };
      throw error;
    } finally {
      work.over = true;
    }
    this.look(work);
  }

  /** Another worker had begun this batch. */
  begunBefore(batch: Batch): boolean {
    const place = this.places.get(batch);
    return place !== undefined && place.index < place.work.lease.begun;
  }

  /** Batches that the loop has got and that are not durable. */
  get unsettled(): number {
    return this.open;
  }

  private async mayBegin(): Promise<void> {
    const begun = this.works.durable + this.open;
    if (begun <= this.allowed || this.end.isStopped) return;
    const allowed = await this.exchange(this.end.orStopped(this.options.ranges.advance(begun)));
    if (allowed !== undefined) this.allowed = allowed;
  }

  /** Reports that keep the leases while this worker waits for slower ones. */
  exchange<T>(request: Promise<T>): Promise<T> {
    return this.works.exchange(request);
  }

  // ---- pushes

  /** The push of a batch of this feed, under the numbers of its range. */
  async push(updates: PushUpdate[], batch: Batch): Promise<void> {
    const place = this.places.get(batch);
    if (!place) throw new KintsugiError('INTERNAL', 'a batch that did not come from this feed was pushed');
    const { work, index } = place;
    try {
      await this.works.push(work, index, () => work.sequence.push(updates), this.options.bounded);
    } catch (error) {
      this.failure ??= { work, index };
      throw error;
    } finally {
      this.open -= 1;
      this.look(work);
    }
  }

  /** Progress of the ranges that this worker holds. */
  get progress(): Parameters<RangeSource['report']>[] {
    return this.works.progress;
  }

  private keepLeases(): void {
    for (const work of this.works) {
      // Reading through compressed data, or through batches that are done, may take long without a batch.
      if (this.works.isExchanging || work.reading) this.works.report(work);
      work.reading = false;
    }
  }

  // ---- the end of a range

  /** Finishes the range if everything in it is durable. */
  private look(work: FeedWork): void {
    if (work.pending > 0) return;
    for (const wake of [...this.idle]) wake();
    if (work.isFinished) this.settle(work, { outcome: 'finished' });
    else if (work.lost && work.over && work.given === work.pushed) this.settle(work, { outcome: 'returned' });
  }

  private settle(work: FeedWork, end: Pick<Outcome, 'outcome' | 'batch' | 'code' | 'message'>): void {
    if (work.ended) return;
    work.ended = true;
    this.works.remove(work);
    // The loop has ended, so batches that it got and has not pushed will not be pushed.
    this.open -= work.given - work.pushed;
    const { lease, sequence } = work;
    const outcome = work.outcome(end);
    // Reported before it is released, so that every range that is finished has been reported.
    this.options.onRange?.({ ...outcome, lease });
    sequence.close();
    const release = this.options.ranges
      .release(lease, outcome)
      .catch((error: unknown) => {
        this.releaseFailure ??= { error };
      })
      .then(() => {
        this.releases.delete(release);
      });
    this.releases.add(release);
  }

  /**
   * After the loop threw: waits for what is under way, hands everything back, and says of the range whose
   * batch failed that it did. Returns whether the failure is one of that batch alone.
   */
  async failed(error: unknown): Promise<boolean> {
    const first = this.failure ?? this.firstUnpushed();
    this.failure = undefined;
    this.pass += 1;
    const excused = !this.broken && first !== undefined && isOfTheBatch(error);
    if (excused) await this.quiet();
    for (const work of [...this.works]) {
      if (excused && work === first.work) {
        const code = codeOf(error, 'MODEL');
        this.settle(work, { outcome: 'failed', batch: first.index, code, message: describe(error) });
      } else this.settle(work, { outcome: work.isFinished ? 'finished' : 'returned' });
    }
    if (excused) await this.flush();
    return excused && this.works.durable > 0 && !this.end.isStopped;
  }

  /**
   * The oldest batch that the loop got and has not pushed. The loop handles batches in order, so this one
   * failed.
   */
  private firstUnpushed(): { work: FeedWork; index: number } | undefined {
    for (const work of this.works) if (work.pushed < work.given) return { work, index: work.pushed };
    return undefined;
  }

  private async quiet(): Promise<void> {
    while ([...this.works].some((work) => work.pending > 0)) {
      await new Promise<void>((resolve) => {
        const done = () => {
          this.idle.delete(done);
          resolve();
        };
        this.idle.add(done);
      });
    }
  }

  private async flush(): Promise<void> {
    await Promise.all(this.releases);
  }

  /** Hands back what is not finished. Resolves when the scheduler knows. */
  async close(): Promise<void> {
    this.works.close();
    this.stop();
    this.asked
      ?.then((lease) => lease && this.settle(this.begin(lease), { outcome: 'returned' }))
      .catch(() => {});
    for (const work of [...this.works]) this.settle(work, { outcome: 'returned' });
    await this.flush();
    if (this.releaseFailure) throw this.releaseFailure.error;
  }
}

/**
 * Errors that may come from one batch. A broken job, a lost connection or a limit of the system is not the
 * fault of a batch.
 */
function isOfTheBatch(error: unknown): boolean {
  if (!(error instanceof KintsugiError)) return systemLimit(error) === undefined;
  const codes = ['MODEL', 'BAD_DATA', 'KEY_RESERVED', 'KEY_TYPE', 'DIM_MISMATCH', 'LENGTH_MISMATCH', 'LIMIT'];
  return codes.includes(error.code);
}
