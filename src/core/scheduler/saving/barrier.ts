/**
 * A cut of one instant: clients hold their pushes back until every shard has begun its snapshot (rule 38). A
 * client says that it holds when none of its pushes is under way, with what it has done of its ranges. So
 * every push is in all of its shards or in none, and the samples say exactly which batches are there.
 */
import type { PeerId } from '../../../protocol/map.js';
import type { MessageOf } from '../../../protocol/messages.js';
import type { SchedulerPolicy } from '../../shared/policy.js';
import type { Ledger } from '../ledger.js';
import type { Samples } from '../samples/samples.js';
import type { Sessions } from '../sessions.js';

export class Barrier {
  /** Clients that hold their pushes back, as they have said. */
  private readonly held = new Set<PeerId>();
  /** Ranges whose workers have said what they have done of them. */
  private readonly told = new Set<string>();
  /** True: clients were told to go on. */
  private over = false;
  /** True: shards may have begun their snapshots. */
  private cut = false;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: SchedulerPolicy,
    private readonly samples: Samples,
    private readonly sessions: Sessions,
    private readonly id: number,
    private readonly startedAt: number,
  ) {
    samples.pause(true);
  }

  get isOver(): boolean {
    return this.over;
  }

  isLate(now: number): boolean {
    return !this.over && now - this.startedAt > this.policy.barrierMs;
  }

  /**
   * Time for which clients have been held, in milliseconds; 0: they go on. After a cut that failed they have
   * as much time again, or training would stand still where the interval is short.
   */
  heldMs(now: number): number {
    return this.over ? 0 : now - this.startedAt;
  }

  private clients(now: number): PeerId[] {
    return this.sessions.present(now, this.policy.reconnectMs);
  }

  /**
   * Asks clients that have not answered. A client goes on by itself long after the scheduler has given up.
   */
  ask(now: number): void {
    const { ledger, policy } = this;
    for (const client of this.clients(now))
      if (!this.held.has(client)) ledger.answer(client, { t: 'hold', id: this.id, ms: 3 * policy.barrierMs });
  }

  /**
   * From now on shards begin their snapshots. A client whose `held` comes later may have pushed in between,
   * so its message does not count.
   */
  begin(): void {
    this.cut = true;
  }

  onHeld(from: PeerId, { ranges }: MessageOf<'held'>): void {
    if (this.cut) return;
    for (const range of ranges) {
      this.samples.receive(from, { t: 'rangeProgress', ...range });
      this.told.add(keyOf(range.name, range.number, from, range.lease));
    }
    this.held.add(from);
  }

  /** True: no client pushes, and it is known which batches are in the shards. */
  isClosed(now: number): boolean {
    if (this.clients(now).some((client) => !this.held.has(client))) return false;
    return this.samples.isExact((name, { number, worker, lease }) =>
      this.told.has(keyOf(name, number, worker, lease)),
    );
  }

  resume(): void {
    if (this.over) return;
    this.over = true;
    this.samples.pause(false);
    this.ledger.afterwards({ kind: 'broadcast', message: { t: 'resume', id: this.id } });
  }
}

function keyOf(name: string, range: number, worker: PeerId, lease: number): string {
  return `${range}/${worker}/${lease}/${name}`;
}
