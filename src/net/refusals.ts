/**
 * Messages that are refused because of who sent them. They are counted by kind, and logged once per peer: a
 * peer that goes on must not fill the log.
 */
import { KintsugiError } from '../common/errors.js';
import type { PeerId } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import type { Role } from '../protocol/senders.js';
import { NODE_NAME, parseAddress } from './address.js';
import type { Logger } from './log.js';
import { hostOf } from './probe.js';
import type { Link } from './transport/index.js';

/** Peers whose refusal is remembered as logged; beyond this the oldest are forgotten. */
const MAX_LOGGED = 1024;

/** Checks the role that a link claims: its token must prove the same. @throws FORBIDDEN */
export function checkProved({ proved }: Link, role: Role): void {
  if (proved === undefined || proved === role) return;
  throw new KintsugiError('FORBIDDEN', `a ${role} with the token of a ${proved}`);
}

export class Refusals {
  /** Kind of message -> number that were refused. Only grows. */
  readonly counts = new Map<string, number>();
  /**
   * Peers, or addresses of unknown ones, whose refusal was logged; at most `MAX_LOGGED`, the oldest first.
   */
  private readonly logged = new Set<PeerId | string>();

  constructor(private readonly log: Logger) {}

  /**
   * Runs the handler of a message. `peer`: the id that the link has introduced itself with. @throws what the
   * handler throws, so that the link closes
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

/** Checks the name and address of a node, which the map tells to every peer. @throws BAD_FRAME */
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
