/** Messages that name a newer map than the node has. */
import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Policy } from '../shared/policy.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';

interface ParkedMessage {
  from: PeerId;
  message: Message;
  parts: Uint8Array[];
  bytes: number;
}

/**
 * Messages that wait for a newer map. Beyond the limits the oldest ones are dropped: the protocol repeats
 * everything.
 */
export class ParkedMessages {
  private parked: ParkedMessage[] = [];

  constructor(
    private readonly policy: Policy,
    private readonly waiting: WaitingBytes,
  ) {}

  /** Parts of a message are views that end with the call: what is kept is copied. */
  add(from: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    let bytes = 0;
    for (const part of parts) bytes += part.byteLength;
    if (this.parked.length >= this.policy.maxParked) this.dropOldest();
    while (!this.waiting.take(bytes)) {
      if (this.parked.length === 0) return;
      this.dropOldest();
    }
    this.parked.push({ from, message, parts: parts.map((part) => part.slice()), bytes });
  }

  takeAll(): ParkedMessage[] {
    const taken = this.parked;
    this.parked = [];
    for (const { bytes } of taken) this.waiting.give(bytes);
    return taken;
  }

  private dropOldest(): void {
    const oldest = this.parked.shift();
    if (oldest) this.waiting.give(oldest.bytes);
  }
}
