/**
 * What a machine of the core answers to an input. Machines never touch the network, a clock or a disk: they
 * collect effects, and the runtime (or the simulator) carries them out.
 */

import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';

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
