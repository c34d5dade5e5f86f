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

export interface BarrierHost {
  readonly ledger: Ledger;
  readonly policy: SchedulerPolicy;
  readonly samples: Samples;
  readonly sessions: Sessions;
}

export class Barrier {
  private readonly held = new Set<PeerId>();
  /** Ranges whose workers have said what they have done of them. */
  private readonly told = new Set<string>();
  private over = false;
  private cut = false;

  constructor(
    private readonly host: BarrierHost,
    private readonly id: number,
    private readonly startedAt: number,
  ) {
    host.samples.pause(true);
  }

  /** Clients were told to go on. */
  get isOver(): boolean {
    return this.over;
  }

  isLate(now: number): boolean {
    return !this.over && now - this.startedAt > this.host.policy.barrierMs;
  }

  private clients(now: number): PeerId[] {
    return this.host.sessions.present(now, this.host.policy.reconnectMs);
  }

  /** Asks those that have not answered. They go on by themselves long after the scheduler has given up. */
  ask(now: number): void {
    const { ledger, policy } = this.host;
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
      this.host.samples.receive(from, { t: 'rangeProgress', ...range });
      this.told.add(keyOf(range.name, range.number, from, range.lease));
    }
    this.held.add(from);
  }

  /** Nobody pushes, and it is known which batches are in the shards. */
  isClosed(now: number): boolean {
    if (this.clients(now).some((client) => !this.held.has(client))) return false;
    return this.host.samples.isExact((name, { number, worker, lease }) =>
      this.told.has(keyOf(name, number, worker, lease)),
    );
  }

  resume(): void {
    if (this.over) return;
    this.over = true;
    this.host.samples.pause(false);
    this.host.ledger.afterwards({ kind: 'broadcast', message: { t: 'resume', id: this.id } });
  }
}

function keyOf(name: string, range: number, worker: PeerId, lease: number): string {
  return `${range}/${worker}/${lease}/${name}`;
}
