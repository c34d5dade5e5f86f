/** Roles for messages that a test hands to a machine itself. */
import type { Message } from '../../src/protocol/messages.js';
import { maySend, ROLES, type Role } from '../../src/protocol/senders.js';

/** A role that may send this kind to `to`; client where no role may. */
export function senderOf(kind: Message['t'], to: Role): Role {
  return ROLES.find((from) => maySend(from, to, kind)) ?? 'client';
}
