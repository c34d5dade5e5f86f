/** What waits on a node: the account of its bytes, and messages that name a newer map than the node has. */
import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Policy } from '../shared/policy.js';

/**
 * What does not fit of pushes is dropped in silence and sent again, of pulls it is refused aloud: those have
 * this share alone.
 */
const FOR_PULLS = 1 / 4;

/** Bytes that wait on one node, whatever they wait for and wherever: one limit for all of them. */
export class WaitingBytes {
  used = 0;

  constructor(private readonly limit: number) {}

  /** False: there is no room, nothing was taken. */
  take(bytes: number): boolean {
    if (this.used + bytes > this.limit) return false;
    this.used += bytes;
    return true;
  }

  /** For a push. */
  takeForPush(bytes: number): boolean {
    return this.used + bytes <= this.limit * (1 - FOR_PULLS) && this.take(bytes);
  }

  give(bytes: number): void {
    this.used -= bytes;
  }
}

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
