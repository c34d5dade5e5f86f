/**
 * The account of answers to pulls that have been gathered and that the sockets of their clients have not
 * taken. An answer is charged to its client before it is gathered, and the runtime reports what the links of
 * clients still hold.
 *
 * A client that does not read holds its share and nobody else's: a quarter of the limit. Beyond three
 * quarters of the limit only clients get more that hold less than 1/64 of it and whose sockets go on taking
 * what they hold. A single answer that is larger
 * than a share or than the limit is let through when nothing else stands in its way, so that every pull is
 * answered at some time.
 */
import type { PeerId } from '../../protocol/map.js';
import type { Policy } from '../shared/policy.js';

/** Part of `maxAnswerBytes` that one client may hold. */
const SHARE = 1 / 4;
/** Beyond this part of `maxAnswerBytes` only clients with little get more. */
const CROWDED = 3 / 4;
/** A client with less than this part of `maxAnswerBytes` has little. */
const LITTLE = 1 / 64;
/** A client that has taken nothing for this part of `answerStallMs` gets nothing beyond `CROWDED`. */
const PAUSE = 1 / 4;
/** Bytes that each answer is charged for its header. */
const HEADER_BYTES = 64;

/** The reason why an answer waits: what its own client holds, or what all clients hold together. */
export type Obstacle = 'client' | 'node';

interface AnswerHolder {
  /** Charged and not taken; more than 0. */
  bytes: number;
  /** Bytes that its link held at the newest report; before the first one, the first charge. */
  linkBytes: number;
  /** Milliseconds of the tick in which its socket took something last, or in which it began to hold bytes. */
  takenAt: number;
}

export class AnswerBytes {
  /** Bytes of all clients together. */
  used = 0;
  /** Clients with bytes that their sockets have not taken. */
  private readonly holders = new Map<PeerId, AnswerHolder>();
  /** Clients that were charged and not reported on since. */
  private readonly fresh = new Set<PeerId>();

  constructor(private readonly policy: Pick<Policy, 'maxAnswerBytes' | 'answerStallMs'>) {}

  /** True: the runtime should report soon what the links of `charged()` hold. */
  get needsReport(): boolean {
    return this.fresh.size > 0;
  }

  /** Clients that were charged and not reported on since. */
  charged(): PeerId[] {
    return [...this.fresh];
  }

  /** All clients with bytes that their sockets have not taken, as far as is known. */
  clients(): PeerId[] {
    return [...this.holders.keys()];
  }

  heldBy(client: PeerId): number {
    return this.holders.get(client)?.bytes ?? 0;
  }

  /** Undefined: there is room for an answer of so many bytes. */
  obstacle(client: PeerId, bytes: number, now: number): Obstacle | undefined {
    const { maxAnswerBytes: limit, answerStallMs } = this.policy;
    const charge = bytes + HEADER_BYTES;
    const { bytes: held, takenAt } = this.holders.get(client) ?? { bytes: 0, takenAt: now };
    if (held > 0 && held + charge > limit * SHARE) return 'client';
    if (this.used === 0) return undefined;
    if (this.used + charge <= limit * CROWDED) return undefined;
    if (held >= limit * LITTLE || now - takenAt >= answerStallMs * PAUSE) return 'client';
    return this.used + charge > limit ? 'node' : undefined;
  }

  charge(client: PeerId, bytes: number, now: number): void {
    const charge = bytes + HEADER_BYTES;
    const holder = this.holders.get(client);
    if (holder) holder.bytes += charge;
    else this.holders.set(client, { bytes: charge, linkBytes: charge, takenAt: now });
    this.used += charge;
    this.fresh.add(client);
  }

  /** The answer was not gathered after all. */
  giveBack(client: PeerId, bytes: number): void {
    const holder = this.holders.get(client);
    if (holder) this.reduce(client, holder, holder.bytes - bytes - HEADER_BYTES);
  }

  /**
   * Bytes that links hold after all that was charged has been handed to them. Other messages are among them.
   */
  report(links: readonly (readonly [client: PeerId, bytes: number])[], now: number): void {
    for (const [client, linkBytes] of links) {
      this.fresh.delete(client);
      const holder = this.holders.get(client);
      if (!holder) continue;
      if (linkBytes < holder.linkBytes) holder.takenAt = now;
      holder.linkBytes = linkBytes;
      this.reduce(client, holder, Math.min(holder.bytes, linkBytes));
    }
  }

  private reduce(client: PeerId, holder: AnswerHolder, bytes: number): void {
    this.used -= holder.bytes - bytes;
    holder.bytes = bytes;
    if (bytes <= 0) this.holders.delete(client);
  }

  /** The link of a client is closed, and what it held is free. */
  gone(client: PeerId): void {
    this.used -= this.heldBy(client);
    this.holders.delete(client);
    this.fresh.delete(client);
  }

  /** The client that holds most of those whose sockets have taken nothing for `answerStallMs`. */
  mostStalled(now: number): PeerId | undefined {
    let most: [client: PeerId, bytes: number] | undefined;
    for (const [client, { bytes, takenAt }] of this.holders) {
      if (now - takenAt < this.policy.answerStallMs) continue;
      if (!most || bytes > most[1]) most = [client, bytes];
    }
    return most?.[0];
  }
}
