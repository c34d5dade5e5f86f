/** Connections that end, and are made again after a while: then both sides are told that the other is up. */
import type { PeerId } from '../protocol/map.js';
import type { Network } from './network.js';
import type { Random } from './random.js';

/** Time within which a connection is made again. */
const AWAY = 60;

/** The parts of the cluster that breaking connections needs. */
interface BreaksHost {
  readonly network: Network;
  readonly random: Random;
  readonly now: number;
  readonly actorOf: ReadonlyMap<PeerId, number>;
  readonly slowReaders: { disconnected(a: number, b: number): void };
  peerUp(at: number, other: number): void;
  count(name: string): void;
  log(text: () => string): void;
}

export class Breaks {
  /** Pairs of actors whose connection broke, with the time at which it is made again. */
  private reconnects: { a: number; b: number; at: number }[] = [];

  constructor(private readonly cluster: BreaksHost) {}

  /** Forgets the connections, because every process is gone. */
  forget(): void {
    this.reconnects = [];
  }

  cut(a: number, b: number): void {
    const { network, random, now } = this.cluster;
    network.cut(a, b, true);
    network.cut(b, a, true);
    this.cluster.slowReaders.disconnected(a, b);
    this.reconnects.push({ a, b, at: now + random.below(AWAY) });
  }

  /** A node ends its connection to a peer. */
  hangUp(index: number, peer: PeerId): void {
    const { cluster } = this;
    const other = cluster.actorOf.get(peer);
    if (other === undefined) return;
    cluster.count('hangUp');
    cluster.log(() => `   n${index} HANGS UP on ${other}`);
    this.cut(index, other);
  }

  reconnect(): void {
    const { cluster } = this;
    if (this.reconnects.length === 0 || !this.reconnects.some(({ at }) => at <= cluster.now)) return;
    const again = this.reconnects.filter(({ at }) => at <= cluster.now);
    this.reconnects = this.reconnects.filter(({ at }) => at > cluster.now);
    for (const { a, b } of again) {
      cluster.peerUp(a, b);
      cluster.peerUp(b, a);
    }
  }
}
