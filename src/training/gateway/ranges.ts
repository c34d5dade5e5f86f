/**
 * Leased ranges of a data set for a program at a gateway. The program reads the samples; the gateway numbers
 * the pushes of their batches, reports what is durable, and keeps the leases while it hears of the program.
 * It keeps none by itself: a program that hangs loses its ranges to others, and no batch is applied twice.
 */

import { KintsugiError } from '../../common/errors.js';
import type { Client, PullRequest, PushRequest } from '../../library/client/client.js';
import { Dataset, type DatasetSpec, type Outcome, type RangeLease } from '../../library/client/dataset.js';
import { HeldRange, HeldRanges } from '../../library/client/held-ranges.js';
import { PushSequence } from '../../library/client/sequence.js';

/** A leased range. */
class GatewayWork extends HeldRange {
  readonly pushes = new Set<Promise<unknown>>();
  failure: unknown;

  constructor(
    lease: RangeLease,
    readonly sequence: PushSequence,
  ) {
    super(lease);
  }
}

/** A range as a program is told of it. */
export interface LeasedRange {
  number: number;
  epoch: number;
  file: number;
  begin: number;
  end: number;
  done: number;
  begun: number;
  leaseMs: number;
}

export class GatewayRanges {
  private readonly works: HeldRanges<GatewayWork>;
  /** The program has asked for something since the leases were last kept. */
  private heard = true;

  private constructor(
    private readonly client: Client,
    readonly dataset: Dataset,
  ) {
    this.works = new HeldRanges(dataset, () => this.keep());
    dataset.onLost((number, lease) => this.works.lost(number, lease));
    dataset.onHold(() => this.works.progress);
  }

  /** @throws BAD_ARGUMENT */
  static async open(client: Client, name: string, spec: DatasetSpec): Promise<GatewayRanges> {
    return new GatewayRanges(client, await Dataset.open(client, name, spec));
  }

  /** The program has sent something: it lives, so the leases are kept. */
  hear(): void {
    this.heard = true;
  }

  /**
   * Awaits work that the program waits for. Meanwhile the leases are kept: it is not the program that hangs.
   */
  asked<T>(work: Promise<T>): Promise<T> {
    return this.works.exchange(work);
  }

  /** Waits for a range; undefined when every range is finished or set aside. */
  async acquire(): Promise<LeasedRange | undefined> {
    const lease = await this.dataset.acquire(this.works.durable);
    if (!lease) return undefined;
    const { done, begun, range, leaseMs } = lease;
    for (const before of this.works) if (before.lease.range.number === range.number) this.forget(before);
    this.works.add(new GatewayWork(lease, new PushSequence(this.client, lease.session)));
    return { ...range, done, begun, leaseMs };
  }

  /**
   * The program had the range before and lost it. Pushes of the new lease take the same numbers from the
   * first one on, so nothing of the old one may be counted any more.
   */
  private forget(work: GatewayWork): void {
    work.lost = true;
    this.works.remove(work);
    work.sequence.close();
  }

  /** @throws ABORTED: the range is not held, or was handed back */
  private held(number: number): GatewayWork {
    for (const work of this.works) if (work.lease.range.number === number) return work;
    throw new KintsugiError('ABORTED', `range ${number} is not leased`);
  }

  /** The next batch is durable already: its push takes its numbers and is not sent. */
  skip(number: number, requests: readonly PullRequest[], samples: number): void {
    const work = this.held(number);
    if (work.pushed >= work.lease.done)
      throw new KintsugiError('BAD_ARGUMENT', `batch ${work.pushed} of range ${number} is not done`);
    work.sequence.skip(requests);
    work.count(work.pushed, samples);
    work.pushed += 1;
  }

  /**
   * Pushes the next batch. Resolves when the push is durable. True: another program has the range by now, and
   * the batch is applied by one of both.
   */
  async push(number: number, requests: readonly PushRequest[], samples: number): Promise<boolean> {
    const work = this.held(number);
    const index = work.pushed;
    if (index < work.lease.done)
      throw new KintsugiError('BAD_ARGUMENT', `batch ${index} of range ${number} is done: skip it`);
    work.count(index, samples);
    const pushed = this.works.push(work, index, () => work.sequence.push(requests));
    work.pushes.add(pushed);
    try {
      await pushed;
    } catch (error) {
      work.failure ??= error;
      throw error;
    } finally {
      work.pushes.delete(pushed);
    }
    return work.lost;
  }

  private keep(): void {
    if (!this.heard && !this.works.isExchanging) return;
    this.heard = false;
    for (const work of this.works) this.works.report(work);
  }

  /**
   * Ends a range of which every batch was skipped or pushed. Waits for the pushes. True: another program has
   * the range by now.
   * @throws what a push of it threw
   */
  async finish(number: number): Promise<boolean> {
    const work = this.held(number);
    await Promise.allSettled(work.pushes);
    if (work.failure) throw work.failure;
    await this.settle(work, work.lost ? { outcome: 'returned' } : { outcome: 'finished' });
    return work.lost;
  }

  /** Hands the range back: others go on with it, from the first batch that is not durable. */
  async giveBack(number: number): Promise<void> {
    await this.settle(this.held(number), { outcome: 'returned' });
  }

  /** A batch cannot be trained. After some attempts its range is set aside. */
  async fail(number: number, batch: number, code: Outcome['code'], message: string): Promise<void> {
    const work = this.held(number);
    await Promise.allSettled(work.pushes);
    await this.settle(work, { outcome: 'failed', batch, ...(code && { code }), message });
  }

  private async settle(
    work: GatewayWork,
    end: Omit<Outcome, 'done' | 'begun' | 'samples' | 'redone'>,
  ): Promise<void> {
    this.works.remove(work);
    await this.dataset.release(work.lease, work.outcome(end));
    work.sequence.close();
  }

  /** The client of the program ends, and what it holds goes back with that. */
  close(): void {
    this.works.close();
  }
}
