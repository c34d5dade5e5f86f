/** Messages about machines that may have vanished (rule 33). */
import type { PeerId } from './map.js';

/** Does this node's machine still acknowledge what it is sent? */
export interface Reach {
  t: 'reach';
  node: PeerId;
  inc: number;
}
/** For how long it has acknowledged nothing of what the sender sent it; absent: there is no link to it. */
export interface Reached {
  t: 'reached';
  node: PeerId;
  inc: number;
  silentMs?: number;
}
