/** Answers to peers that introduce themselves, held back until they are durable. */
import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Ledger } from './ledger.js';

/** The connection gets an identity, and the newest map. `inc`: 0 for a client. */
export function admit(ledger: Ledger, link: number, peer: PeerId, inc: number): void {
  const message: Message = { t: 'welcome', id: peer, inc, map: ledger.map };
  ledger.afterwards({ kind: 'reply', link, message, admit: { peer, inc } });
}

export function turnAway(ledger: Ledger, link: number, message: Message): void {
  ledger.afterwards({ kind: 'reply', link, message });
}
