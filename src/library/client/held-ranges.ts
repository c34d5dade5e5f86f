/**
 * The state of the ranges that a worker holds: which batches of each were pushed, and which are durable. It
 * also sends the reports that keep the leases.
 */
import { KintsugiError } from '../../common/errors.js';
import type { Dataset, Outcome, RangeLease } from './dataset.js';

/** Reports keep a lease: so many in its time. */
const REPORTS_PER_LEASE = 4;

/** A leased range. */
export class HeldRange {
  /** Samples of the batches that count for this worker, and those that somebody else had begun. */
  samples = 0;
  redone = 0;
  /** Batches that were pushed or skipped. */
  pushed = 0;
  /** All batches below this one are durable. Some later ones may be, too. */
  done: number;
  /** Pushes under way. */
  pending = 0;
  /**
   * Another worker has the range. Pushes of this worker that are under way do no harm, because both workers
   * use the same numbers.
   */
  lost = false;
  private readonly beyond = new Set<number>();

  constructor(readonly lease: RangeLease) {
    this.done = lease.done;
  }

  get begun(): number {
    return Math.max(this.lease.begun, this.pushed);
  }

  /** Batch `index` is trained, or was durable before. */
  count(index: number, samples: number): void {
    const { done, begun } = this.lease;
    this.samples += samples;
    if (index >= done && index < begun) this.redone += samples;
  }

  becameDurable(index: number): void {
    this.beyond.add(index);
    while (this.beyond.delete(this.done)) this.done += 1;
  }

  /** The report with which a range is released. */
  outcome(end: Omit<Outcome, 'done' | 'begun' | 'samples' | 'redone'>): Outcome {
    const { done, begun, samples, redone } = this;
    return { ...end, done, begun, samples, redone };
  }
}

export class HeldRanges<Held extends HeldRange> implements Iterable<Held> {
  /** Batches that this worker has made durable, of all ranges. */
  durable = 0;
  private readonly held = new Set<Held>();
  private timer: NodeJS.Timeout | undefined;
  private exchanging = 0;

  /** `keep`: called several times in the time of a lease, to report those that are to be kept. */
  constructor(
    private readonly dataset: Pick<Dataset, 'report'>,
    private readonly keep: () => void,
  ) {}

  [Symbol.iterator](): Iterator<Held> {
    return this.held.values();
  }

  add(held: Held): Held {
    this.held.add(held);
    this.timer ??= setInterval(this.keep, held.lease.leaseMs / REPORTS_PER_LEASE).unref();
    return held;
  }

  remove(held: Held): void {
    this.held.delete(held);
  }

  /** The scheduler gave the range to another worker. */
  lost(range: number, lease: number): void {
    for (const held of this.held)
      if (held.lease.id === lease && held.lease.range.number === range) held.lost = true;
  }

  report(held: Held): void {
    if (!held.lost) this.dataset.report(...this.progressOf(held));
  }

  /** Progress of the ranges that this worker still holds. */
  get progress(): Parameters<Dataset['report']>[] {
    return [...this.held].filter(({ lost }) => !lost).map((held) => this.progressOf(held));
  }

  private progressOf({ lease, done, begun }: Held): Parameters<Dataset['report']> {
    return [lease, done, begun, this.durable];
  }

  /** A request to the parameter server: while one is under way, the worker itself is not slow. */
  async exchange<T>(request: Promise<T>): Promise<T> {
    this.exchanging += 1;
    try {
      return await request;
    } finally {
      this.exchanging -= 1;
    }
  }

  get isExchanging(): boolean {
    return this.exchanging > 0;
  }

  /**
   * Accounts for the push of batch `index`. Resolves when the push is durable, or when another worker has the
   * range; then the push of one of the two workers is applied. `eager`: reports the batch at once, because
   * other workers wait for it.
   * @throws what `send` throws of a range that is still held
   */
  async push(held: Held, index: number, send: () => Promise<unknown>, eager = false): Promise<void> {
    held.pending += 1;
    held.pushed = index + 1;
    this.report(held);
    try {
      await this.exchange(send());
      held.becameDurable(index);
      this.durable += 1;
      // While other pushes of the range are under way, their reports will include this one.
      if (held.pending === 1 || eager) this.report(held);
    } catch (error) {
      // The session has ended because somebody else finished the range, so this push has been applied.
      const ended = error instanceof KintsugiError && error.code === 'SESSION_EXPIRED';
      if (!held.lost && !ended) throw error;
      held.lost = true;
    } finally {
      held.pending -= 1;
    }
  }

  close(): void {
    clearInterval(this.timer);
  }
}
