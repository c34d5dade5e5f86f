/** Messages between the machines of a test, and filters for some of them. */
import type { LinkBytes } from '../../src/core/shared/content-bytes.js';
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
  return payload(held.filter((packet) => packet.from === from && packet.to === to));
}

/** Bytes of the parts of messages. */
function payload(packets: readonly Packet[]): number {
  return packets.flatMap(({ parts }) => parts).reduce((sum, { byteLength }) => sum + byteLength, 0);
}

/** Bytes of what each peer has sent to each. */
export class Payloads {
  private readonly sent = new Map<PeerId, Map<PeerId, number>>();

  add(packet: Packet): void {
    const { from, to } = packet;
    const sent = this.sent.get(from) ?? new Map<PeerId, number>();
    this.sent.set(from, sent.set(to, (sent.get(to) ?? 0) + payload([packet])));
  }

  /** The links of a peer, which hold what is held back, and nothing else. */
  linksOf(from: PeerId, holds: readonly Held[]): Map<PeerId, LinkBytes> {
    const links = new Map<PeerId, LinkBytes>();
    for (const [to, bytes] of this.sent.get(from) ?? []) {
      const held = heldBytes(holds, from, to);
      links.set(to, { held, taken: bytes - held });
    }
    return links;
  }
}

/** Loses what is held back between two peers. */
export function loseHeld(holds: readonly Held[], from: PeerId, to: PeerId): void {
  for (const { packets = [] } of holds)
    for (let i = packets.length - 1; i >= 0; i--)
      if (packets[i]!.from === from && packets[i]!.to === to) packets.splice(i, 1);
}
