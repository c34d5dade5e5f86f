/** Proofs of sessions, as the runtimes of a job would make them. */
import type { PeerId } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';

const PROOFS = Array.from({ length: 128 }, (_, i) => Uint8Array.of(1 + i));

/** Stands for the mac of a session's id, which the runtimes make and give with the session. */
export const proofOf = (session: PeerId): Uint8Array => PROOFS[session & 127]!;

export function proven(message: Message): Message {
  const session = message.t === 'push' || message.t === 'skipTo' ? message.client : undefined;
  return session === undefined ? message : ({ ...message, proof: proofOf(session) } as Message);
}
