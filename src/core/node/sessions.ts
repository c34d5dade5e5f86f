/**
 * Which clients' sessions have ended. The scheduler says so, and what it said may be lost: so this node asks
 * now and then which ones are open (rule 31).
 */
import { SCHEDULER } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import type { Outbox } from '../shared/outbox.js';
import type { Policy } from '../shared/policy.js';
import { rangesBetween, type SessionRange } from '../shared/session-ranges.js';

/** The node that owners are on. */
export interface SessionsHost {
  readonly out: Outbox;
  readonly policy: Policy;
  /** By `shardKey`. */
  readonly owners: ReadonlyMap<number, Owner>;
}

export class NodeSessions {
  private askedAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly host: SessionsHost) {}

  ended(ranges: readonly SessionRange[]): void {
    for (const owner of this.host.owners.values()) owner.onSessionsEnded(ranges);
  }

  /** All others below `next` have ended. */
  onOpen({ open, next }: MessageOf<'openSessions'>): void {
    this.ended(rangesBetween(open, next));
  }

  tick(now: number): void {
    const { out, policy, owners } = this.host;
    if (now - this.askedAt < policy.sessionCheckMs) return;
    this.askedAt = now;
    for (const owner of owners.values()) {
      if (owner.clients().length === 0) continue;
      out.send(SCHEDULER, { t: 'sessions' });
      return;
    }
  }
}
