/**
 * Leases that expired while nobody knew why. A batch that stalls its worker looks like a worker that was
 * stopped, or whose machine vanished, or is too slow. Only the first is a fault of the range. So an expired
 * lease is a doubt first. A worker that hands the range back clears it, and so does every batch that becomes
 * durable from there. A worker that is gone by then, or says nothing for long, confirms it: then it is a
 * failure. A range with as many failures and doubts as it may have failures waits. So a batch that stalls its
 * workers stalls no more of them than it may.
 *
 * Doubts are soft state: after a restart of the scheduler the range is tried again.
 */
import type { PeerId } from '../../../protocol/map.js';
import type { OpenRange } from './state.js';

/** Times of a lease after which a doubt is confirmed. */
const DOUBTED_LEASES = 4;
/** Leases that may expire at one batch. A further one is a failure at once: no worker has got through it. */
const MAX_EXPIRED = 16;

export interface Doubt {
  number: number;
  worker: PeerId;
  lease: number;
  /** Milliseconds at which it is confirmed. */
  until: number;
}

interface RangeDoubts {
  /** Batches that were durable when the leases expired. */
  batch: number;
  /** Leases that expired at this batch. */
  expired: number;
  open: Doubt[];
}

export class Doubts {
  private readonly byRange = new Map<number, RangeDoubts>();

  constructor(private readonly leaseMs: number) {}

  /** The lease of the range has expired. False: too many have, so this one is a failure. */
  add(range: OpenRange, now: number): boolean {
    const { number, worker, lease, done: batch } = range;
    const known = this.byRange.get(number) ?? { batch, expired: 0, open: [] };
    this.byRange.set(number, known);
    known.expired++;
    if (known.expired > MAX_EXPIRED) return false;
    known.open.push({ number, worker, lease, until: now + DOUBTED_LEASES * this.leaseMs });
    return true;
  }

  /** The range waits for what becomes of its doubts: they may be as many failures as it may have. */
  holdBack({ number, done, failures, failedAt }: OpenRange, maxFailures: number): boolean {
    const open = this.byRange.get(number)?.open.length ?? 0;
    return open > 0 && open + (failedAt === done ? failures : 0) >= maxFailures;
  }

  /** The worker is heard of about a lease that it had. True: that lease was in doubt, and is not any more. */
  settle(number: number, worker: PeerId, lease: number): boolean {
    const known = this.byRange.get(number);
    const at = known?.open.findIndex((doubt) => doubt.worker === worker && doubt.lease === lease) ?? -1;
    if (at >= 0) known!.open.splice(at, 1);
    return at >= 0;
  }

  /** Batches of the range have become durable: no batch that was in doubt is at fault. */
  passed({ number, done }: OpenRange): void {
    const known = this.byRange.get(number);
    if (known && done > known.batch) this.byRange.delete(number);
  }

  /** The range is not open any more. */
  forget(number: number): void {
    this.byRange.delete(number);
  }

  has(worker: PeerId): boolean {
    return this.all.some((doubt) => doubt.worker === worker);
  }

  /** Takes out the doubts about leases of a worker that is gone. */
  takeOf(worker: PeerId): Doubt[] {
    return this.take((doubt) => doubt.worker === worker);
  }

  /** Takes out the doubts that have lasted long enough. */
  takeOverdue(now: number): Doubt[] {
    return this.take(({ until }) => now >= until);
  }

  /** Milliseconds before which none is overdue. */
  get dueAt(): number {
    return Math.min(...this.all.map(({ until }) => until));
  }

  delay(ms: number): void {
    for (const doubt of this.all) doubt.until += ms;
  }

  private get all(): Doubt[] {
    return [...this.byRange.values()].flatMap(({ open }) => open);
  }

  private take(which: (doubt: Doubt) => boolean): Doubt[] {
    const taken = this.all.filter(which);
    for (const { number, worker, lease } of taken) this.settle(number, worker, lease);
    return taken;
  }
}
