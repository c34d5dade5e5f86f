/**
 * Messages that are refused because of who sent them. They are counted by kind, and logged once per peer: a
 * peer that goes on must not fill the log.
 */
import { KintsugiError } from '../errors.js';
import type { PeerId } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import type { Role } from '../protocol/senders.js';
import type { Link } from '../transport/index.js';
import { NODE_NAME, parseAddress } from './address.js';
import type { Logger } from './log.js';
import { hostOf } from './probe.js';

/** Peers whose refusal is remembered as logged; beyond this the oldest are forgotten. */
const MAX_LOGGED = 1024;

/** A link says that it has this role; its token must say the same. @throws FORBIDDEN */
export function checkProved({ proved }: Link, role: Role): void {
  if (proved === undefined || proved === role) return;
  throw new KintsugiError('FORBIDDEN', `a ${role} with the token of a ${proved}`);
}

export class Refusals {
  /** Kind of the message -> how many. */
  readonly counts = new Map<string, number>();
  private readonly logged = new Set<PeerId | string>();

  constructor(private readonly log: Logger) {}

  /**
   * Runs the handler of a message. `peer`: who the link has said it is. @throws what the handler throws, so
   * that the link closes
   */
  during(link: Link, peer: PeerId | undefined, { t: kind }: Message, handle: () => void): void {
    try {
      handle();
    } catch (error) {
      if (error instanceof KintsugiError && error.code === 'FORBIDDEN')
        this.note(link, peer, kind, error.message);
      throw error;
    }
  }

  private note(link: Link, peer: PeerId | undefined, kind: string, message: string): void {
    this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1);
    const who = peer ?? hostOf(link.remote);
    if (this.logged.has(who)) return;
    this.logged.add(who);
    if (this.logged.size > MAX_LOGGED) this.logged.delete(this.logged.values().next().value!);
    this.log.warn('sender.refused', { peer: peer ?? null, remote: link.remote, kind, message });
  }
}

/** Checks what the map is going to tell every node and client. @throws BAD_FRAME */
export function checkJoin(join: MessageOf<'join'>): void {
  try {
    parseAddress(join.address);
  } catch {
    throw new KintsugiError(
      'BAD_FRAME',
      `a node joins with an address that is none: "${join.address.slice(0, 80)}"`,
    );
  }
  if (!NODE_NAME.test(join.name)) throw new KintsugiError('BAD_FRAME', 'a node joins with a malformed name');
}
