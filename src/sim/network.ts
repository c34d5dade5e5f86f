/**
 * The simulated network: a queue per ordered pair of actors, delivered in any order between pairs and in
 * order within a connection. Connections break (what was in flight is lost, or a part of it arrives late,
 * beside the new connection), sides are partitioned, links lag, messages are doubled.
 */
import type { PeerId } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import type { Random } from './random.js';
import { type Arrived, type Letter, Wire } from './wire.js';

interface Packet {
  letter: Letter;
  /** Who sent it; the process may be gone when it arrives, and another one in its place. */
  sender: PeerId | undefined;
}

/** What a connection begins with, between a peer and the scheduler: nothing repeats it. */
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
  /** What is left of a broken connection may sleep somewhere for long. */
  asleepUntil: number;
}

export class Network {
  /** Packets under way. */
  inFlight = 0;
  /** Queues with something in them. */
  private active: Queue[] = [];
  private readonly current = new Map<number, Queue>();
  /** Pair -> since when. */
  private readonly blocked = new Map<number, number>();
  private readonly lagging = new Map<number, number>();
  readonly wire = new Wire();
  /** When somebody who was cut off was heard again. */
  healedAt = 0;

  constructor(
    private readonly random: Random,
    private readonly actors: number,
    private readonly duplicate: number,
    /** When something that was delayed arrives at the latest; 0 = soon. */
    private readonly late: () => number,
  ) {}

  private pair(from: number, to: number): number {
    return from * this.actors + to;
  }

  /** The parts are copied. */
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
    if (this.duplicate > 0 && !INTRODUCTIONS.has(message.t) && this.random.chance(this.duplicate)) {
      // As if it had been sent again, and the first one had waited on an older connection.
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

  private remove(index: number): void {
    const last = this.active.pop()!;
    if (index < this.active.length) this.active[index] = last;
  }

  /**
   * The connection from one to the other ends; a prefix of what was in flight may still arrive, beside newer
   * messages.
   */
  cut(from: number, to: number, mayArrive: boolean): void {
    const pair = this.pair(from, to);
    const queue = this.current.get(pair);
    if (!queue) return;
    this.current.delete(pair);
    const waiting = queue.packets.length;
    if (waiting === 0) return;
    // The scheduler knows its peers by connection: nothing arrives there beside a newer one.
    const kept = mayArrive && to !== 0 && this.random.chance(0.5) ? this.random.below(waiting + 1) : 0;
    queue.packets.length = Math.min(waiting, kept);
    queue.asleepUntil = kept > 0 ? this.late() : 0;
    this.inFlight -= waiting - queue.packets.length;
    if (queue.packets.length === 0) this.active = this.active.filter((other) => other !== queue);
  }

  /** A process ended: nothing reaches it any more; what it sent may still arrive. */
  kill(actor: number): void {
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

  /** Nothing gets from one to the other any more. */
  block(from: number, to: number, now: number): void {
    const pair = this.pair(from, to);
    if (!this.blocked.has(pair)) this.blocked.set(pair, now);
  }

  /**
   * For how long the kernel of one has not acknowledged what the other sent: one way that is blocked
   * suffices.
   */
  unacknowledgedFor(a: number, b: number, now: number): number {
    if (this.blocked.size === 0) return 0;
    const since = Math.min(
      this.blocked.get(this.pair(a, b)) ?? Number.POSITIVE_INFINITY,
      this.blocked.get(this.pair(b, a)) ?? Number.POSITIVE_INFINITY,
    );
    return Math.max(0, now - since);
  }

  /** Nobody is cut off, nothing is slow, nothing sleeps. */
  heal(now: number): void {
    if (this.blocked.size > 0) this.healedAt = now;
    for (const queue of this.active) queue.asleepUntil = 0;
    this.blocked.clear();
    this.lagging.clear();
  }

  lag(from: number, to: number, chance: number): void {
    this.lagging.set(this.pair(from, to), chance);
  }

  /** Two actors can talk now. */
  connected(a: number, b: number): boolean {
    return !this.blocked.has(this.pair(a, b)) && !this.blocked.has(this.pair(b, a));
  }
}
