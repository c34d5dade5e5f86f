/**
 * The replicas that have reported of late, for the status of the job and for readers that look for one. They
 * are in no map and no decision depends on them, so a restart of the scheduler forgets them until they report
 * again.
 */
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { ReplicaStatus } from '../../protocol/status.js';
import type { Ledger } from './ledger.js';

/** Milliseconds after which a replica that has not reported is not listed. */
const SILENT_MS = 5000;
const MAX_REPLICAS = 1024;

export class Replicas {
  /** The newest report of each, ordered by its time, oldest first. */
  private readonly known = new Map<PeerId, { at: number; status: ReplicaStatus }>();

  constructor(private readonly ledger: Ledger) {}

  /**
   * The answer has the epoch of the newest durable map, which is the newest that any process can have: a map
   * that is not durable was sent to nobody. A replica that has this map knows that no owner was replaced
   * before it asked.
   */
  onReport(from: PeerId, report: MessageOf<'replicaReport'>, now: number): void {
    const { t: _, n, ...status } = report;
    this.known.delete(from);
    if (this.known.size === MAX_REPLICAS) this.forgetSilent(now);
    if (this.known.size < MAX_REPLICAS) this.known.set(from, { at: now, status: { id: from, ...status } });
    const epoch = this.ledger.durableMap?.epoch ?? 0;
    this.ledger.now({ kind: 'send', to: from, message: { t: 'replicaHeard', n, epoch }, parts: [] });
  }

  private forgetSilent(now: number): void {
    for (const [id, { at }] of this.known) {
      if (now - at <= SILENT_MS) return;
      this.known.delete(id);
    }
  }

  status(now: number): ReplicaStatus[] {
    this.forgetSilent(now);
    const all = [...this.known.values()].map(({ status }) => status);
    // The session of a replica ends when it says goodbye.
    return all.filter(({ id }) => this.ledger.isLeased(id));
  }
}
