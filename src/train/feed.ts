/**
 * The batches of a worker: leases ranges of the data set, reads them, and accounts for every batch until it
 * is durable. A range that was begun by somebody else is gone on with behind the last batch that is known to
 * be durable; the batches before are read, not trained, because the numbers of the others follow from them.
 */
import type { Lease, Outcome } from '../client/dataset.js';
import { describe, KintsugiError } from '../errors.js';
import type { Batch, PullRequest, PushUpdate } from './trainer.js';

/** What the feed needs of the job. */
export interface Ranges {
  /** Waits for a range; undefined when all are done. `clock`: batches that this worker has made durable */
  acquire(clock: number): Promise<Lease | undefined>;
  report(lease: Lease, done: number, begun: number, clock: number): void;
  release(lease: Lease, outcome: Outcome): Promise<void>;
  /** Waits until so many batches may have been begun; returns up to which count it need not ask again. */
  advance(clock: number): Promise<number>;
}

/** Pushes of one range, see sequence.ts. */
export interface Sequence {
  skip(requests: PullRequest[]): void;
  push(updates: PushUpdate[]): Promise<void>;
  close(): void;
}

export interface FeedOptions {
  ranges: Ranges;
  open(session: number): Sequence;
  /** `onRead`: to be called as long as reading goes on, also without a batch to give. */
  read(lease: Lease, onRead: () => void): AsyncGenerator<Batch, void, undefined>;
  /** The keys that the push of a batch goes to. */
  touched(batch: Batch): PullRequest[];
  /** Ask before every batch whether others are too far behind. */
  bounded: boolean;
  onRange?: (end: RangeEnd) => void;
}

/** A range that this worker is done with. */
export interface RangeEnd extends Outcome {
  lease: Lease;
}

/** Reports keep a lease: so many in its time. */
const REPORTS_PER_LEASE = 4;

/** A leased range. */
interface Work {
  lease: Lease;
  sequence: Sequence;
  /** Batches read so far, trained or not, and their samples. */
  read: number;
  samples: number;
  redone: number;
  /** Something was read since the lease was last kept. */
  reading: boolean;
  /** All are read. */
  wholly: boolean;
  /** Nothing more will be read. */
  over: boolean;
  /** Batches given to the loop, pushed by it, and durable: all below, and of the durable ones some beyond. */
  given: number;
  pushed: number;
  done: number;
  durable: Set<number>;
  /** Pushes under way. */
  pending: number;
  lost: boolean;
  ended: boolean;
}

interface Place {
  work: Work;
  index: number;
}

export class RangeFeed implements AsyncIterable<Batch> {
  private readonly works = new Set<Work>();
  private readonly places = new WeakMap<Batch, Place>();
  private readonly releases = new Set<Promise<void>>();
  private readonly idle = new Set<() => void>();
  private timer: NodeJS.Timeout | undefined;
  /** Which iteration of the batches is the valid one. */
  private pass = 0;
  private asked: Promise<Lease | undefined> | undefined;
  private stopping = false;
  private wake: () => void = () => {};
  private readonly stopped = new Promise<undefined>((resolve) => {
    this.wake = () => resolve(undefined);
  });
  private failure: { work: Work; index: number } | undefined;
  /** There are no further ranges because asking for one failed: no batch is to blame. */
  private broken = false;
  private releaseFailure: { error: unknown } | undefined;
  /** Batches that were given to the loop and are not settled yet, and that are durable, of all ranges. */
  private open = 0;
  private durable = 0;
  private allowed = -1;
  /** Requests to the parameter server under way: while there are any it is not this worker that is slow. */
  private exchanging = 0;

  constructor(private readonly options: FeedOptions) {}

  /**
   * No further range and no further batch: what was given to the loop is trained, the rest handed back by
   * `close`.
   */
  stop(): void {
    this.stopping = true;
    this.wake();
  }

  /**
   * The scheduler gave the range to somebody else: what is under way does no harm, but nothing more is begun.
   */
  lost(range: number, lease: number): void {
    for (const work of this.works)
      if (work.lease.id === lease && work.lease.range.number === range) work.lost = true;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Batch, void, undefined> {
    const pass = ++this.pass;
    while (!this.stopping && pass === this.pass) {
      if (this.releaseFailure) throw this.releaseFailure.error;
      const lease = await this.acquire(pass);
      if (!lease) return;
      yield* this.batches(this.begin(lease));
    }
  }

  /** A pass that was given up may still be asking: its answer is for the next one. */
  private async acquire(pass: number): Promise<Lease | undefined> {
    this.asked ??= this.options.ranges.acquire(this.durable);
    this.asked.catch(() => {
      this.broken = true;
    });
    const lease = await Promise.race([this.asked, this.stopped]);
    if (pass !== this.pass || this.stopping) return undefined;
    this.asked = undefined;
    return lease;
  }

  private begin(lease: Lease): Work {
    const { done } = lease;
    const work: Work = {
      ...{ lease, sequence: this.options.open(lease.session), done, given: done, pushed: done },
      ...{ read: 0, samples: 0, redone: 0, pending: 0, durable: new Set<number>() },
      ...{ reading: false, wholly: false, over: false, lost: false, ended: false },
    };
    this.works.add(work);
    this.timer ??= setInterval(() => this.keepLeases(), lease.leaseMs / REPORTS_PER_LEASE).unref();
    return work;
  }

  private async *batches(work: Work): AsyncGenerator<Batch, void, undefined> {
    const { lease, sequence } = work;
    // Whoever holds the range now does the rest; after `stop` somebody else will.
    const isOver = () => work.lost || work.ended || this.stopping;
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
        work.samples += batch.size;
        if (index < lease.done) continue;
        if (index < lease.begun) work.redone += batch.size;
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

  private async mayBegin(): Promise<void> {
    const begun = this.durable + this.open;
    if (begun <= this.allowed || this.stopping) return;
    const allowed = await this.exchange(Promise.race([this.options.ranges.advance(begun), this.stopped]));
    if (allowed !== undefined) this.allowed = allowed;
  }

  /** Waiting for others is no reason to lose a lease. */
  async exchange<T>(request: Promise<T>): Promise<T> {
    this.exchanging += 1;
    try {
      return await request;
    } finally {
      this.exchanging -= 1;
    }
  }

  // ---- pushes

  /** The push of a batch of this feed, under the numbers of its range. */
  async push(updates: PushUpdate[], batch: Batch): Promise<void> {
    const place = this.places.get(batch);
    if (!place) throw new KintsugiError('INTERNAL', 'a batch is pushed that is none of this feed');
    const { work, index } = place;
    work.pending += 1;
    work.pushed = index + 1;
    if (!work.lost) this.report(work);
    try {
      await this.exchange(work.sequence.push(updates));
      work.durable.add(index);
      this.durable += 1;
      while (work.durable.delete(work.done)) work.done += 1;
      // With others under way the next report says it, too, and nobody waits for it.
      if (!work.lost && (work.pending === 1 || this.options.bounded)) this.report(work);
    } catch (error) {
      // A session ends when somebody else has finished the range: then this push is in already.
      if (!work.lost && !isEnded(error)) {
        this.failure ??= { work, index };
        throw error;
      }
      work.lost = true;
    } finally {
      this.open -= 1;
      work.pending -= 1;
      this.look(work);
    }
  }

  private begunIn({ lease, pushed }: Work): number {
    return Math.max(lease.begun, pushed);
  }

  private report(work: Work): void {
    this.options.ranges.report(work.lease, work.done, this.begunIn(work), this.durable);
  }

  private keepLeases(): void {
    for (const work of this.works) {
      // What is compressed, or was done by somebody else, may take long to read through.
      if ((this.exchanging > 0 || work.reading) && !work.lost) this.report(work);
      work.reading = false;
    }
  }

  // ---- the end of a range

  /** Finishes the range if everything in it is durable. */
  private look(work: Work): void {
    if (work.pending > 0) return;
    for (const wake of [...this.idle]) wake();
    if (isFinished(work)) this.settle(work, { outcome: 'finished' });
    else if (work.lost && work.over && work.given === work.pushed) this.settle(work, { outcome: 'returned' });
  }

  private settle(work: Work, end: Pick<Outcome, 'outcome' | 'batch' | 'code' | 'message'>): void {
    if (work.ended) return;
    work.ended = true;
    this.works.delete(work);
    // What was given and not pushed will not be: the loop has ended.
    this.open -= work.given - work.pushed;
    const { lease, sequence, samples, redone, done } = work;
    const outcome: Outcome = { ...end, done, begun: this.begunIn(work), samples, redone };
    // Told before it is released: then whoever looks for all that was finished finds it.
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
        const code = error instanceof KintsugiError ? error.code : 'MODEL';
        this.settle(work, { outcome: 'failed', batch: first.index, code, message: describe(error) });
      } else this.settle(work, { outcome: isFinished(work) ? 'finished' : 'returned' });
    }
    if (excused) await this.flush();
    return excused && this.durable > 0 && !this.stopping;
  }

  /** The oldest batch that the loop got and has not pushed: it goes through them one by one. */
  private firstUnpushed(): { work: Work; index: number } | undefined {
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
    clearInterval(this.timer);
    this.stop();
    this.asked
      ?.then((lease) => lease && this.settle(this.begin(lease), { outcome: 'returned' }))
      .catch(() => {});
    for (const work of [...this.works]) this.settle(work, { outcome: 'returned' });
    await this.flush();
    if (this.releaseFailure) throw this.releaseFailure.error;
  }
}

function isFinished({ wholly, pending, done, read }: Work): boolean {
  return wholly && pending === 0 && done >= read;
}

/** Failures that another batch need not have; a broken job or a lost connection is nobody's batch. */
function isOfTheBatch(error: unknown): boolean {
  if (!(error instanceof KintsugiError)) return true;
  const codes = ['MODEL', 'BAD_DATA', 'KEY_RESERVED', 'KEY_TYPE', 'DIM_MISMATCH', 'LENGTH_MISMATCH', 'LIMIT'];
  return codes.includes(error.code);
}

function isEnded(error: unknown): boolean {
  return error instanceof KintsugiError && error.code === 'SESSION_EXPIRED';
}
