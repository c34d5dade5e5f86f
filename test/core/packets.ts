/** Messages between the machines of a test, and how it names some of them. */
import type { PeerId } from '../../src/protocol/map.js';
import type { Message } from '../../src/protocol/messages.js';

export interface Packet {
  from: PeerId;
  to: PeerId;
  message: Message;
  parts: readonly Uint8Array[];
}
export type Match = (packet: Packet) => boolean;

/** Messages of these kinds, optionally only from or to a peer. */
export function kind(names: Message['t'] | Message['t'][], ends: { from?: PeerId; to?: PeerId } = {}): Match {
  const wanted = [names].flat();
  return ({ from, to, message }) =>
    wanted.includes(message.t) && (ends.from ?? from) === from && (ends.to ?? to) === to;
}

/** Messages that a test keeps back. */
export interface Hold {
  readonly packets: Packet[];
  /** Lets them go, in the order they were sent, and later ones pass. */
  release(): void;
  /** Throws away what was kept; later ones pass. */
  drop(): void;
}
