/**
 * Sends a whole map to peers that need one although the changes were sent to them. Peers say which epoch they
 * have: nodes in every heartbeat, clients when they miss something. A peer that is behind has most likely
 * only not read the newest changes yet, and a whole map is large. So a peer gets a whole map only when it
 * lacks a decision that is `lateMapMs` old.
 */
import type { PeerId } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import type { Ledger } from './ledger.js';

export class LateMaps {
  /**
   * Newest durable epochs, ascending, with the time when each was first seen here. Every peer should have the
   * first one once that is `lateMapMs` old.
   */
  private seen: { epoch: number; at: number }[] = [];
  /** Peer -> when it was sent a whole map; not longer than `lateMapMs` ago. */
  private readonly sent = new Map<PeerId, number>();

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: Pick<SchedulerPolicy, 'lateMapMs'>,
  ) {}

  tick(now: number): void {
    // No peer can have a map that is not durable, and while the store is away the newest one may not be.
    const epoch = this.ledger.durableMap?.epoch;
    if (epoch !== undefined && this.seen.at(-1)?.epoch !== epoch) this.seen.push({ epoch, at: now });
    const before = now - this.policy.lateMapMs;
    const old = this.seen.findLastIndex(({ at }) => at <= before);
    if (old > 0) this.seen.splice(0, old);
    for (const [peer, at] of this.sent) if (at <= before) this.sent.delete(peer);
  }

  /** A peer says that it has this epoch. */
  heard(peer: PeerId, epoch: number, now: number): void {
    const [oldest] = this.seen;
    const { durableMap: map } = this.ledger;
    const due = oldest !== undefined && now - oldest.at >= this.policy.lateMapMs && epoch < oldest.epoch;
    if (!due || !map || this.sent.has(peer)) return;
    this.sent.set(peer, now);
    this.ledger.now({ kind: 'send', to: peer, message: { t: 'map', map }, parts: [] });
  }
}
