/**
 * Ends of clients' sessions. The scheduler tells them, and its message may be lost, so the node asks now and
 * then which sessions are open (rule 31: owners forget a session that has ended, and refuse its pushes).
 */
import { SCHEDULER } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Outbox } from '../shared/outbox.js';
import type { Policy } from '../shared/policy.js';
import { rangesBetween, type SessionRange } from '../shared/session-ranges.js';
import type { Owners } from './owners.js';

export class NodeSessions {
  /** Milliseconds of the last question, or of the last time that there was nobody to ask about. */
  private askedAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly out: Outbox,
    private readonly policy: Policy,
    private readonly owners: Owners,
  ) {}

  ended(ranges: readonly SessionRange[]): void {
    for (const owner of this.owners.values()) owner.onSessionsEnded(ranges);
  }

  /** The answer: all sessions below `next` that are not open have ended. */
  onOpen({ open, next }: MessageOf<'openSessions'>): void {
    this.ended(rangesBetween(open, next));
  }

  tick(now: number): void {
    const { out, policy, owners } = this;
    if (now - this.askedAt < policy.sessionCheckMs) return;
    this.askedAt = now;
    for (const owner of owners.values()) {
      if (owner.clients().length === 0) continue;
      out.send(SCHEDULER, { t: 'sessions' });
      return;
    }
  }
}
