/**
 * The simulated network: a queue per ordered pair of actors, delivered in any order between pairs and in
 * order within a connection. Connections break (messages in flight are lost, or some arrive late, beside the
 * new connection), sides are partitioned, links lag, messages are doubled.
 */
import type { LinkBytes } from '../core/shared/content-bytes.js';
import type { PeerId } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import type { Random } from './random.js';
import { type Arrived, type Letter, Wire } from './wire.js';

interface Packet {
  letter: Letter;
  /** Peer id of the sender: its process may be gone when the packet arrives, and another one in its place. */
  sender: PeerId | undefined;
}

/** First messages of a connection between a peer and the scheduler. They are never repeated. */
const INTRODUCTIONS: ReadonlySet<Message['t']> = new Set(['join', 'attach', 'welcome']);

export interface Delivery extends Arrived {
  letter: Letter;
  from: number;
  to: number;
  sender: PeerId | undefined;
}

interface Queue {
  from: number;
  to: number;
  packets: Packet[];
  /** Time before which no packet is delivered: the rest of a broken connection may sleep for long. */
  asleepUntil: number;
}

export class Network {
  /** Packets under way: the sum over `active`. */
  inFlight = 0;
  /** Queues with packets, those of broken connections included. */
  private active: Queue[] = [];
  /** Pair -> queue of its newest connection. */
  private readonly current = new Map<number, Queue>();
  /** Pair -> bytes that one has sent to the other, copies left out. */
  private readonly sent = new Map<number, number>();
  /** Pair -> time since which no packet gets through. */
  private readonly blocked = new Map<number, number>();
  /** Actor that handles no packet -> since when, and until when. */
  private readonly held = new Map<number, { since: number; until: number }>();
  /** Pair -> chance that a packet is not delivered when its turn comes. */
  private readonly lagging = new Map<number, number>();
  readonly wire = new Wire();
  /** End of the last partition. */
  healedAt = 0;

  constructor(
    private readonly random: Random,
    private readonly actors: number,
    private readonly duplicate: number,
    /** Draws the time until which delayed packets sleep; 0: they come soon. */
    private readonly late: () => number,
    /** The socket of the receiver takes nothing from this sender now. */
    private readonly isSilent: (from: number, to: number) => boolean = () => false,
  ) {}

  private pair(from: number, to: number): number {
    return from * this.actors + to;
  }

  /** Sends a message. Its parts are copied. */
  send(
    from: number,
    to: number,
    message: Message,
    parts: readonly Uint8Array[] = [],
    sender: PeerId | undefined = undefined,
  ): void {
    const packet = { letter: this.wire.encode(message, parts), sender };
    const pair = this.pair(from, to);
    let queue = this.current.get(pair);
    if (!queue) {
      queue = { from, to, packets: [], asleepUntil: 0 };
      this.current.set(pair, queue);
    }
    if (queue.packets.length === 0) this.active.push(queue);
    queue.packets.push(packet);
    this.inFlight++;
    this.sent.set(pair, (this.sent.get(pair) ?? 0) + packet.letter.frame.byteLength);
    if (this.duplicate > 0 && !INTRODUCTIONS.has(message.t) && this.random.chance(this.duplicate)) {
      // The copy arrives as if the message had been repeated, and one of both had waited on an older
      // connection.
      const ordered = from === 0 || to === 0;
      const copy = { letter: this.wire.copy(packet.letter, parts), sender };
      this.active.push({ from, to, packets: [copy], asleepUntil: ordered ? 0 : this.late() });
      this.inFlight++;
    }
  }

  /** The next packet of a random queue, or undefined when nothing can move now. */
  next(now: number): Delivery | undefined {
    for (let attempt = 0; attempt < 4 && this.active.length > 0; attempt++) {
      const index = this.random.below(this.active.length);
      const queue = this.active[index]!;
      if (queue.asleepUntil > now) continue;
      const pair = this.pair(queue.from, queue.to);
      if (this.blocked.size > 0 && this.blocked.has(pair)) continue;
      if (this.isSilent(queue.from, queue.to)) continue;
      if (this.held.size > 0 && this.heldSince(queue.to, now) !== undefined) continue;
      const lag = this.lagging.size > 0 ? this.lagging.get(pair) : undefined;
      if (lag !== undefined && this.random.chance(lag)) continue;
      const { letter, sender } = queue.packets.shift()!;
      this.inFlight--;
      if (queue.packets.length === 0) this.remove(index);
      const { message, parts } = this.wire.decode(letter);
      return { from: queue.from, to: queue.to, sender, letter, message, parts };
    }
    return undefined;
  }

  /** Bytes that one has sent on its newest connection to the other, and that are under way. */
  bytesFrom(from: number, to: number): number {
    const packets = this.current.get(this.pair(from, to))?.packets ?? [];
    return packets.reduce((sum, { letter }) => sum + letter.frame.byteLength, 0);
  }

  /** Bytes that one has sent to the other, on all connections. */
  linkBytes(from: number, to: number): LinkBytes {
    const held = this.bytesFrom(from, to);
    return { held, taken: (this.sent.get(this.pair(from, to)) ?? 0) - held };
  }

  private remove(index: number): void {
    const last = this.active.pop()!;
    if (index < this.active.length) this.active[index] = last;
  }

  /**
   * Ends the connection from one to the other. A prefix of the messages in flight may still arrive, beside
   * newer messages.
   */
  cut(from: number, to: number, mayArrive: boolean): void {
    const pair = this.pair(from, to);
    const queue = this.current.get(pair);
    if (!queue) return;
    this.current.delete(pair);
    const waiting = queue.packets.length;
    if (waiting === 0) return;
    // The scheduler knows its peers by connection: no message of an older one arrives there.
    const taken = mayArrive && to !== 0 && !this.isSilent(from, to);
    const kept = taken && this.random.chance(0.5) ? this.random.below(waiting + 1) : 0;
    queue.packets.length = Math.min(waiting, kept);
    queue.asleepUntil = kept > 0 ? this.late() : 0;
    this.inFlight -= waiting - queue.packets.length;
    if (queue.packets.length === 0) this.active = this.active.filter((other) => other !== queue);
  }

  /** Ends the connections of a process: no message reaches it any more; its own may still arrive. */
  kill(actor: number): void {
    this.held.delete(actor);
    for (let other = 0; other < this.actors; other++) {
      this.cut(other, actor, false);
      this.cut(actor, other, actor !== 0);
    }
    for (const queue of this.active) if (queue.to === actor) this.inFlight -= queue.packets.length;
    this.active = this.active.filter((queue) => queue.to !== actor);
  }

  partition(side: readonly boolean[], now: number): void {
    for (let a = 0; a < this.actors; a++) {
      for (let b = 0; b < this.actors; b++) if (side[a] !== side[b]) this.block(a, b, now);
    }
  }

  /** Lets no packet from one to the other through. */
  block(from: number, to: number, now: number): void {
    const pair = this.pair(from, to);
    if (!this.blocked.has(pair)) this.blocked.set(pair, now);
  }

  /**
   * Time for which the kernel of one has not acknowledged bytes of the other: one blocked way suffices.
   */
  unacknowledgedFor(a: number, b: number, now: number): number {
    if (this.blocked.size === 0) return 0;
    const since = Math.min(
      this.blocked.get(this.pair(a, b)) ?? Number.POSITIVE_INFINITY,
      this.blocked.get(this.pair(b, a)) ?? Number.POSITIVE_INFINITY,
    );
    return Math.max(0, now - since);
  }

  /** Ends all partitions, lags and sleeps. */
  heal(now: number): void {
    if (this.blocked.size > 0) this.healedAt = now;
    for (const queue of this.active) queue.asleepUntil = 0;
    this.blocked.clear();
    this.lagging.clear();
  }

  /** Ends all holds. */
  release(): void {
    this.held.clear();
  }

  /** The actor handles nothing for a time, and its kernel goes on. */
  hold(actor: number, since: number, until: number): void {
    this.held.set(actor, { since, until });
  }

  /** Since when an actor handles nothing; undefined: it handles what comes. */
  heldSince(actor: number, now: number): number | undefined {
    const held = this.held.get(actor);
    return held && now < held.until ? held.since : undefined;
  }

  lag(from: number, to: number, chance: number): void {
    this.lagging.set(this.pair(from, to), chance);
  }

  /** True if two actors can talk now. */
  connected(a: number, b: number): boolean {
    return !this.blocked.has(this.pair(a, b)) && !this.blocked.has(this.pair(b, a));
  }
}
