/**
 * The account of answers to pulls that have been gathered and that the sockets of their clients have not
 * taken. An answer is charged to its client before it is gathered, and the runtime reports what the links of
 * clients still hold.
 *
 * There are two rooms. Clients that hold little, up to 1/64 of the limit each, share a quarter of it; all
 * others share three quarters, of which one client may hold a third. So a client that does not read holds its
 * share and nobody else's, and small answers never wait for the room of large ones, or large ones for that of
 * small ones. A client moves with all that it holds when it gets more than little, and stays there until it
 * holds nothing. A single answer that is
 * larger than a share or than its room is let through when nothing else is in the room, so that every pull is
 * answered at some time.
 */
import type { PeerId } from '../../protocol/map.js';
import type { Policy } from '../shared/policy.js';

/** Part of `maxAnswerBytes` that one client may hold, where that is less than `SHARE_BYTES`. */
const SHARE = 1 / 4;
/**
 * One client may hold so many bytes. It is enough for its socket to go on, and a node that gathers far ahead
 * of a socket makes others wait.
 */
const SHARE_BYTES = 4 << 20;
/** Parts of `maxAnswerBytes` that the rooms have. */
const ROOMS = { little: 1 / 4, much: 3 / 4 } as const;
/** A client with no more than this part of `maxAnswerBytes` has little. */
const LITTLE = 1 / 64;
/** A client that has not gone on for this part of `answerStallMs` gets nothing where its room is full. */
const PAUSE = 1 / 4;
/** A client goes on when its socket has taken so many bytes, or all that it held. */
const PROGRESS_BYTES = 64 << 10;
/** Bytes that each answer is charged for its header. */
export const HEADER_BYTES = 64;

export type Room = keyof typeof ROOMS;

/** The reason why an answer waits: what its own client holds, or what all clients of its room hold. */
export type Obstacle = 'client' | 'room';

interface AnswerHolder {
  /** Charged and not taken; more than 0. */
  bytes: number;
  /** The part of `bytes` that is of answers being gathered: its link cannot have them. */
  gathering: number;
  /** Bytes that its link held at the newest report; before the first one, the first charge. */
  linkBytes: number;
  /** Milliseconds of the tick in which it went on last, or in which it began to hold bytes. */
  wentOnAt: number;
  /** Bytes that its socket has to take until it goes on again: to take little is to take nothing. */
  toTake: number;
  /** Kept until the client holds nothing, so that a room never has more than was let into it. */
  room: Room;
}

export class AnswerBytes {
  /** Bytes of the clients in each room. */
  private readonly usedIn: Record<Room, number> = { little: 0, much: 0 };
  /** Clients with bytes that their sockets have not taken. */
  private readonly holders = new Map<PeerId, AnswerHolder>();
  /** Clients that were charged and not reported on since. */
  private readonly fresh = new Set<PeerId>();

  constructor(private readonly policy: Pick<Policy, 'maxAnswerBytes' | 'answerStallMs'>) {}

  /** Bytes of all clients together. */
  get used(): number {
    return this.usedIn.little + this.usedIn.much;
  }

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

  /** The part of `heldBy` that is being gathered. */
  gatheringFor(client: PeerId): number {
    return this.holders.get(client)?.gathering ?? 0;
  }

  /** The room that a client is in when it has an answer of so many bytes, too. */
  roomWith(client: PeerId, bytes: number): Room {
    const holder = this.holders.get(client);
    if (holder?.room === 'much') return 'much';
    const after = (holder?.bytes ?? 0) + bytes + HEADER_BYTES;
    return after <= this.policy.maxAnswerBytes * LITTLE ? 'little' : 'much';
  }

  /** Undefined: there is room for an answer of so many bytes. */
  obstacle(client: PeerId, bytes: number, now: number): Obstacle | undefined {
    const { maxAnswerBytes: limit, answerStallMs } = this.policy;
    const { bytes: held, wentOnAt, room: before } = this.holders.get(client) ?? { bytes: 0, wentOnAt: now };
    const after = held + bytes + HEADER_BYTES;
    if (held > 0 && after > Math.min(limit * SHARE, SHARE_BYTES)) return 'client';
    const room = this.roomWith(client, bytes);
    const others = this.usedIn[room] - (before === room ? held : 0);
    if (others === 0 || others + after <= limit * ROOMS[room]) return undefined;
    // A client with much waits for its own socket first.
    if (before === 'much' || now - wentOnAt >= answerStallMs * PAUSE) return 'client';
    return 'room';
  }

  charge(client: PeerId, bytes: number, now: number): void {
    const charge = bytes + HEADER_BYTES;
    const room = this.roomWith(client, bytes);
    const holder = this.holders.get(client) ?? beginning(charge, now, room);
    this.usedIn[holder.room] -= holder.bytes;
    holder.room = room;
    holder.bytes += charge;
    // A charge between two reports does not hide what the socket takes.
    if (this.holders.has(client)) holder.linkBytes += charge;
    this.usedIn[room] += holder.bytes;
    this.holders.set(client, holder);
    this.fresh.add(client);
  }

  /** Charges an answer before the first of its slices is gathered. */
  begin(client: PeerId, bytes: number, now: number): void {
    this.charge(client, bytes, now);
    this.gathers(this.holders.get(client)!, bytes + HEADER_BYTES);
  }

  /** All slices of an answer are gathered, and its link has it next. */
  gathered(client: PeerId, bytes: number): void {
    this.gathers(this.holders.get(client)!, -bytes - HEADER_BYTES);
    this.fresh.add(client);
  }

  private gathers(holder: AnswerHolder, bytes: number): void {
    holder.gathering += bytes;
    holder.linkBytes -= bytes;
  }

  /** An answer whose slices were being gathered is given up. */
  abandon(client: PeerId, bytes: number): void {
    this.gathered(client, bytes);
    this.giveBack(client, bytes);
  }

  /** The answer was not gathered after all. */
  giveBack(client: PeerId, bytes: number): void {
    const holder = this.holders.get(client);
    if (!holder) return;
    holder.linkBytes -= bytes + HEADER_BYTES;
    this.reduce(client, holder, holder.bytes - bytes - HEADER_BYTES);
  }

  /**
   * Bytes that links hold after all that was charged has been handed to them. Other messages are among them.
   */
  report(links: readonly (readonly [client: PeerId, bytes: number])[], now: number): void {
    for (const [client, linkBytes] of links) {
      this.fresh.delete(client);
      const holder = this.holders.get(client);
      if (!holder) continue;
      holder.toTake -= Math.max(0, holder.linkBytes - linkBytes);
      holder.linkBytes = linkBytes;
      this.reduce(client, holder, Math.min(holder.bytes, linkBytes + holder.gathering));
      if (holder.toTake > 0 && linkBytes > 0) continue;
      holder.wentOnAt = now;
      holder.toTake = Math.min(PROGRESS_BYTES, holder.bytes);
    }
  }

  private reduce(client: PeerId, holder: AnswerHolder, bytes: number): void {
    this.usedIn[holder.room] -= holder.bytes - bytes;
    holder.bytes = bytes;
    if (bytes <= 0) this.holders.delete(client);
  }

  /** The link of a client is closed, and what it held is free. */
  gone(client: PeerId): void {
    const holder = this.holders.get(client);
    if (holder) this.reduce(client, holder, 0);
    this.fresh.delete(client);
  }

  /** The client that holds most of a room, of those that have not gone on for `answerStallMs`. */
  mostStalled(inRoom: Room, now: number): PeerId | undefined {
    let most: [client: PeerId, bytes: number] | undefined;
    for (const [client, { bytes, room, wentOnAt }] of this.holders) {
      if (room !== inRoom || now - wentOnAt < this.policy.answerStallMs) continue;
      if (!most || bytes > most[1]) most = [client, bytes];
    }
    return most?.[0];
  }
}

/** A client without bytes that is charged so many now. */
function beginning(charge: number, now: number, room: Room): AnswerHolder {
  const toTake = Math.min(PROGRESS_BYTES, charge);
  return { bytes: 0, gathering: 0, linkBytes: charge, wentOnAt: now, toTake, room };
}
