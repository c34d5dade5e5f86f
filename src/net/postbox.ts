/** Messages to peers that go out together, in one frame for each peer, at the end of a turn. */
import type { PeerId } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';

/** Posted messages of so many bytes are sent at once: waiting for more would only delay them. */
const SEND_AT_BYTES = 256 * 1024;
const SEND_AT_MESSAGES = 64;

export type Posted = [message: Message, parts: readonly Uint8Array[]];

export class Postbox {
  private readonly boxes = new Map<PeerId, { messages: Posted[]; bytes: number }>();

  get isEmpty(): boolean {
    return this.boxes.size === 0;
  }

  /** Peers with posted messages. */
  peers(): IterableIterator<PeerId> {
    return this.boxes.keys();
  }

  bytesFor(to: PeerId): number {
    return this.boxes.get(to)?.bytes ?? 0;
  }

  /** True: there is so much for this peer that it should be sent now. */
  add(to: PeerId, message: Message, parts: readonly Uint8Array[]): boolean {
    let box = this.boxes.get(to);
    if (!box) {
      box = { messages: [], bytes: 0 };
      this.boxes.set(to, box);
    }
    box.messages.push([message, parts]);
    box.bytes += bytesOf(parts);
    return box.bytes >= SEND_AT_BYTES || box.messages.length >= SEND_AT_MESSAGES;
  }

  take(to: PeerId): Posted[] {
    const messages = this.boxes.get(to)?.messages ?? [];
    this.boxes.delete(to);
    return messages;
  }
}

export function bytesOf(parts: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const part of parts) bytes += part.byteLength;
  return bytes;
}
