/** Messages between the machines of a test, and filters for some of them. */
import type { PeerId } from '../../src/protocol/map.js';
import type { Message } from '../../src/protocol/messages.js';
import type { Role } from '../../src/protocol/senders.js';

export interface Packet {
  from: PeerId;
  to: PeerId;
  message: Message;
  parts: readonly Uint8Array[];
}
export type Match = (packet: Packet) => boolean;

/** Filter for messages of these kinds, optionally only from or to a peer. */
export function kind(names: Message['t'] | Message['t'][], ends: { from?: PeerId; to?: PeerId } = {}): Match {
  const wanted = [names].flat();
  return ({ from, to, message }) =>
    wanted.includes(message.t) && (ends.from ?? from) === from && (ends.to ?? to) === to;
}

/**
 * Filter for maps to the node at `index` and to clients: a request of a client that has a newer map waits for
 * that.
 */
export function mapsTo(
  cluster: { readonly nodes: readonly { id: PeerId }[]; roleOf(peer: PeerId): Role },
  index: number,
): Match {
  return ({ to, message }) =>
    ['map', 'mapDiff'].includes(message.t) &&
    (to === cluster.nodes[index]!.id || cluster.roleOf(to) === 'client');
}

/** Messages that a test keeps back. */
export interface Hold {
  readonly packets: Packet[];
  /** Delivers the kept messages, in the order in which they were sent. Later messages pass. */
  release(): void;
  /** Drops the kept messages. Later messages pass. */
  drop(): void;
}

interface Held {
  readonly packets: Packet[] | undefined;
}

/** Payload that is held back between two peers: what a link has not taken. */
export function heldBytes(holds: readonly Held[], from: PeerId, to: PeerId): number {
  const held = holds.flatMap(({ packets = [] }) => packets);
  const parts = held.filter((packet) => packet.from === from && packet.to === to).flatMap((p) => p.parts);
  return parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

/** Bytes of block content that are held back on the links of a node, by receiver. */
export function heldContent(holds: readonly Held[], from: PeerId): Map<PeerId, number> {
  const links = new Map<PeerId, number>();
  for (const { packets = [] } of holds)
    for (const { to, message, parts, from: sender } of packets)
      if (sender === from && message.t === 'content')
        links.set(to, (links.get(to) ?? 0) + parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  return links;
}

/** Loses what is held back between two peers. */
export function loseHeld(holds: readonly Held[], from: PeerId, to: PeerId): void {
  for (const { packets = [] } of holds)
    for (let i = packets.length - 1; i >= 0; i--)
      if (packets[i]!.from === from && packets[i]!.to === to) packets.splice(i, 1);
}
