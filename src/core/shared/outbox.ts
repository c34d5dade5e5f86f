/**
 * What a machine of the core answers to an input. Machines never touch the network, a clock or a disk: they
 * collect effects, and the runtime (or the simulator) carries them out.
 */

import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Pace } from './pace.js';
import type { Policy } from './policy.js';
import type { RateLimit } from './rate.js';

export interface SendEffect {
  kind: 'send';
  to: PeerId;
  message: Message;
  /** Opaque bytes; nobody changes them after they were handed over. */
  parts: readonly Uint8Array[];
}

/**
 * Something that happened and that a person or a report wants to know; the runtime logs it with its own
 * clock.
 */
export interface EventEffect {
  kind: 'event';
  name: string;
  fields: Record<string, unknown>;
}

export type Effect = SendEffect | EventEffect;

export class Outbox {
  private effects: Effect[] = [];

  send(to: PeerId, message: Message, parts: readonly Uint8Array[] = []): void {
    this.effects.push({ kind: 'send', to, message, parts });
  }

  event(name: string, fields: Record<string, unknown> = {}): void {
    this.effects.push({ kind: 'event', name, fields });
  }

  take(): Effect[] {
    const taken = this.effects;
    this.effects = [];
    return taken;
  }
}

/** What a node lends to the machines on it. */
export interface CoreHost {
  readonly out: Outbox;
  readonly policy: Policy;
  /** Of background recovery on this node. */
  readonly pace: Pace;
  /** Of all planned moves to this node. */
  readonly moveRate: RateLimit;
  /** Milliseconds of the newest tick. */
  readonly now: number;
  /**
   * Nothing but effects of this step refers to these bytes any more: a hint, so that large ones need not wait
   * for the garbage collector.
   */
  discard(bytes: Uint8Array): void;
}

/** A view of u32 words on a payload part; copies only when the part is not aligned. */
export function words(part: Uint8Array | undefined): Uint32Array {
  if (!part) return new Uint32Array(0);
  const count = part.byteLength >>> 2;
  if (part.byteOffset % 4 === 0) return new Uint32Array(part.buffer, part.byteOffset, count);
  const copy = part.slice(0, count * 4);
  return new Uint32Array(copy.buffer, 0, count);
}

/** The bytes of a typed array, as a payload part. */
export function bytes(array: Uint32Array | BigUint64Array | Float32Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
