/**
 * The sessions of clients. A session is an id under which pushes are numbered; owners remember its last
 * numbers until it ends (rule 31: then they forget the session and refuse its pushes). Which sessions are
 * open is durable (ledger.ts); who is connected is not: after a restart every lease starts again.
 */
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { rangesAround, rangesBetween } from '../shared/session-ranges.js';
import { admit, turnAway } from './introductions.js';
import type { Ledger } from './ledger.js';
import type { Samples } from './samples/samples.js';
import type { Workers } from './workers.js';

/** A client's connection to the scheduler keeps its session open. */
interface SessionLease {
  /** The newest connection of the client; undefined: it has none. */
  link: number | undefined;
  /** Milliseconds at which it lost its last connection. */
  closedAt: number;
}

export class Sessions {
  /** By session: exactly the open sessions of clients. */
  private readonly leases = new Map<PeerId, SessionLease>();
  /** Sessions whose clients have no connection, in the order in which they lost it. */
  private readonly absent = new Set<PeerId>();
  /** Milliseconds of the last message about ends. */
  private toldAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: SchedulerPolicy,
    private readonly samples: Samples,
    private readonly workers: Workers,
  ) {
    for (const { id, leased } of ledger.state.sessions.values())
      if (leased) {
        this.leases.set(id, { link: undefined, closedAt: 0 });
        this.absent.add(id);
      }
  }

  /** A client introduces itself on a connection, or comes back under the session that it had. */
  attach(link: number, { id: known, job }: MessageOf<'attach'>, now: number): void {
    const isForeign = job !== undefined && job !== this.ledger.map.job;
    if (known !== undefined && (isForeign || !this.resume(known, link)))
      return turnAway(this.ledger, link, { t: 'stale', code: 'SESSION_EXPIRED' });
    const id = known ?? this.lease(link, now);
    if (id === undefined) return turnAway(this.ledger, link, { t: 'stale', code: 'LIMIT' });
    this.samples.attached(id);
    admit(this.ledger, link, id, 0);
  }

  /** A client says goodbye. When its connection closes it has no session any more. */
  detach(id: PeerId): void {
    this.samples.closed(id);
    this.end(id);
  }

  /** A new session for the client on this connection, which keeps it open. Undefined: there are too many. */
  private lease(link: number, now: number): PeerId | undefined {
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

  private end(id: PeerId): void {
    if (!this.leases.delete(id)) return;
    this.absent.delete(id);
    this.ledger.endSession(id);
    this.samples.ended(id);
    this.workers.ended(id);
  }

  /** The client of a session is back, on another connection. False: there is no such session. */
  private resume(id: PeerId, link: number): boolean {
    const lease = this.leases.get(id);
    if (lease) lease.link = link;
    this.absent.delete(id);
    return lease !== undefined;
  }

  /** `link`: which of the client's connections ended; undefined: the only one. */
  closed(id: PeerId, link: number | undefined, now: number): void {
    const lease = this.leases.get(id);
    if (!lease || (link !== undefined && link !== lease.link)) return;
    lease.link = undefined;
    lease.closedAt = now;
    this.absent.delete(id);
    this.absent.add(id);
    this.samples.closed(id);
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

  /** Called at the first tick: absence counts from now on. */
  restartLeases(now: number): void {
    for (const lease of this.leases.values()) lease.closedAt = now;
  }

  answer(): MessageOf<'openSessions'> {
    const { nextPeer, sessions } = this.ledger.state;
    return { t: 'openSessions', next: nextPeer, open: [...sessions.keys()] };
  }
}
