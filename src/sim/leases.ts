/**
 * The check of leases: a lease is on the scheduler's disk before its worker hears of it, and a range has one
 * worker at a time, until that worker hands it back or the scheduler calls it lost.
 */
import type { DurableState } from '../core/scheduler/scheduler.js';
import type { PeerId } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import { Violation } from './violation.js';

interface Holder {
  worker: PeerId;
  lease: number;
}

export class Leases {
  /** Range -> worker and lease, as the worker was told. */
  private readonly holders = new Map<number, Holder>();
  /**
   * Range -> leases that a worker has handed back. The answer to a repeated request may wait for the disk
   * meanwhile. It reaches its worker after the release, and the worker ignores it.
   */
  private readonly returned = new Map<number, Holder[]>();
  /**
   * Range -> a lease that a worker was told of and that the disk does not have. One transaction may hold a
   * lease and its loss. Then the loss is told in the same step.
   */
  private readonly doubtful = new Map<number, Holder>();
  /**
   * Sessions of ranges that a worker has finished. One transaction may hold a lease and the end of its range,
   * which an earlier worker trained. The worker that is told learns so with its first report.
   */
  private readonly over = new Set<number>();

  constructor(private readonly disk: () => DurableState) {}

  /** A message leaves the scheduler. */
  sent(to: PeerId, message: Message): void {
    if (message.t === 'acquired' && message.range) this.leased(to, message, message.range.number);
    if (message.t !== 'rangeLost') return;
    const doubt = this.doubtful.get(message.number);
    if (doubt?.worker === to && doubt.lease === message.lease) this.doubtful.delete(message.number);
    const holder = this.holders.get(message.number);
    if (holder?.worker === to && holder.lease === message.lease) this.holders.delete(message.number);
  }

  private leased(worker: PeerId, { id, session, done }: MessageOf<'acquired'>, number: number): void {
    if (this.over.has(session)) return;
    if (this.returned.get(number)?.some((old) => isLease(old, worker, id))) return;
    // The request was repeated: another answer is on its way in the same step.
    if (isLease(this.doubtful.get(number), worker, id)) return;
    const range = this.onDisk(number);
    // The answer to a repeated request may wait for the disk while its worker trains with another answer.
    const late = range && range.done > done && !isLease(this.holders.get(number), worker, id);
    if (range?.worker !== worker || range.lease !== id || range.session !== session || late) {
      if (this.doubtful.has(number)) this.settled();
      this.doubtful.set(number, { worker, lease: id });
      return;
    }
    const holder = this.holders.get(number);
    if (holder && !isLease(holder, worker, id))
      throw new Violation(
        `range ${number} was given to client ${worker} while client ${holder.worker} has it`,
      );
    this.holders.set(number, { worker, lease: id });
  }

  /** The scheduler has sent all messages of a step. */
  settled(): void {
    for (const [number, { worker }] of this.doubtful)
      throw new Violation(`client ${worker} was told of a lease on range ${number} that is not on the disk`);
  }

  /** A message reaches the scheduler: a worker may hand its range back. */
  received(from: PeerId, message: Message): void {
    if (message.t !== 'release') return;
    const { number, lease, session, outcome } = message;
    const holder = this.holders.get(number);
    if (holder?.worker === from && holder.lease === lease)
      this.returned.set(number, [...(this.returned.get(number) ?? []), holder]);
    const finished = outcome === 'finished' && session === this.onDisk(number)?.session;
    if (finished && session !== undefined) this.over.add(session);
    if (holder?.worker === from || finished) this.holders.delete(number);
  }

  /** The scheduler is gone. Its disk may have decisions that it told nobody. */
  crashed(): void {
    this.over.clear();
    for (const [number, { worker, lease }] of this.holders) {
      const range = this.onDisk(number);
      if (range?.worker !== worker || range.lease !== lease) this.holders.delete(number);
    }
  }

  private onDisk(number: number) {
    for (const { open } of this.disk().datasets) {
      const range = open.get(number);
      if (range) return range;
    }
    return undefined;
  }
}

function isLease(holder: Holder | undefined, worker: PeerId, lease: number): boolean {
  return holder?.worker === worker && holder.lease === lease;
}
