/**
 * The sessions of clients. A session is an id under which pushes are numbered; owners remember its last
 * numbers until it ends (rule 31). Which sessions are open is durable (ledger.ts); who is connected is not:
 * after a restart every lease starts again.
 */
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { rangesAround, rangesBetween } from '../shared/session-ranges.js';
import type { Ledger } from './ledger.js';

/** A client's connection to the scheduler keeps its session open. */
interface Lease {
  /** Its newest connection; undefined: none. */
  link: number | undefined;
  closedAt: number;
}

export class Sessions {
  private readonly leases = new Map<PeerId, Lease>();
  /** Those without a connection, in the order in which they lost it. */
  private readonly absent = new Set<PeerId>();
  private toldAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: SchedulerPolicy,
    private readonly ended: (id: PeerId) => void,
  ) {
    for (const { id, leased } of ledger.state.sessions.values())
      if (leased) {
        this.leases.set(id, { link: undefined, closedAt: 0 });
        this.absent.add(id);
      }
  }

  /** A new session for the client on this connection, which keeps it open. Undefined: there are too many. */
  lease(link: number, now: number): PeerId | undefined {
    if (this.leases.size >= this.policy.maxSessions && !this.makeRoom(now)) return undefined;
    const id = this.ledger.openSession(true);
    this.leases.set(id, { link, closedAt: 0 });
    return id;
  }

  /**
   * Clients that come and go must not keep others out. So the session of the client that has been away for
   * longest ends, unless that client may be about to reconnect.
   */
  private makeRoom(now: number): boolean {
    const [longest] = this.absent;
    if (longest === undefined || now - this.leases.get(longest)!.closedAt <= this.policy.reconnectMs)
      return false;
    this.end(longest);
    return true;
  }

  /** Clients that may be pushing: those with a connection, and those that lost it at most `absentMs` ago. */
  present(now: number, absentMs: number): PeerId[] {
    return [...this.leases]
      .filter(([, { link, closedAt }]) => link !== undefined || now - closedAt <= absentMs)
      .map(([id]) => id);
  }

  isOpen(id: PeerId): boolean {
    return this.leases.has(id);
  }

  end(id: PeerId): void {
    if (!this.leases.delete(id)) return;
    this.absent.delete(id);
    this.ledger.endSession(id);
    this.ended(id);
  }

  /** The client of a session is back, on another connection. False: there is no such session. */
  resume(id: PeerId, link: number): boolean {
    const lease = this.leases.get(id);
    if (lease) lease.link = link;
    this.absent.delete(id);
    return lease !== undefined;
  }

  /** `link`: which of the client's connections; undefined: the only one. True when it has none now. */
  closed(id: PeerId, link: number | undefined, now: number): boolean {
    const lease = this.leases.get(id);
    if (!lease || (link !== undefined && link !== lease.link)) return false;
    lease.link = undefined;
    lease.closedAt = now;
    this.absent.delete(id);
    this.absent.add(id);
    return true;
  }

  /** `slept`: milliseconds in which this process did not run. They do not count as absence of clients. */
  tick(now: number, slept: number): void {
    for (const [id, lease] of this.leases) {
      if (lease.link !== undefined) continue;
      lease.closedAt += slept;
      if (now - lease.closedAt > this.policy.sessionMs) this.end(id);
    }
    if (now - this.toldAt >= this.policy.sessionEndsMs) this.tellEnds(now);
  }

  /**
   * Tells nodes which sessions have ended, when that is durable. Each range reaches from one open session to
   * the next, so that neighbours join into one. Nodes that do not get this ask (`openSessions`).
   */
  private tellEnds(now: number): void {
    const ended = this.ledger.takeEnded();
    if (ended.length === 0) return;
    this.toldAt = now;
    const { nextPeer, sessions } = this.ledger.state;
    const ranges = rangesAround(ended, rangesBetween(sessions.keys(), nextPeer));
    this.ledger.afterwards({ kind: 'broadcast', message: { t: 'sessionsEnded', ranges } });
  }

  /** After a restart, when the clock is known. */
  restartLeases(now: number): void {
    for (const lease of this.leases.values()) lease.closedAt = now;
  }

  answer(): MessageOf<'openSessions'> {
    const { nextPeer, sessions } = this.ledger.state;
    return { t: 'openSessions', next: nextPeer, open: [...sessions.keys()] };
  }
}
