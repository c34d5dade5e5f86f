/** The state of one peer, and of one link, in `Peers` (peers.ts). */
import type { LinkBytes } from '../core/shared/content-bytes.js';
import type { Retry } from '../core/shared/retry.js';
import type { WaitingBytes } from '../core/shared/waiting-bytes.js';
import type { WaitingList } from '../core/shared/waiting-list.js';
import type { PeerId } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import type { Role } from '../protocol/senders.js';
import type { Link } from './transport/index.js';

export interface Peer {
  /** The link in use. Another one between the two may live, which the peer uses. */
  link: Link | undefined;
  /** Incarnation of the process; 0: a client. */
  inc: number;
  dialing: boolean;
  readonly redials: Retry;
  /** Set while the next dial waits for its pause. */
  timer: NodeJS.Timeout | undefined;
  /** Messages that are kept until there is a link. Empty while there is one. */
  readonly queue: WaitingList<Message>;
  readonly queued: WaitingBytes;
  /** Messages may have been lost since `onUp` was last called for the peer. */
  lossy: boolean;
  /** Bytes that links have taken which have ended, lost ones included. */
  takenBefore: number;
  /** Bytes that had come on the link when `busy` was last asked. */
  receivedBytes: number;
  /** When `busy` last found that bytes had come, in milliseconds. */
  receivedAt: number;
  /** Since when the peer's kernel has not taken our connection, in milliseconds; undefined: none is asked. */
  askedAt: number | undefined;
}

/** Bytes of the links to a peer. Held are those that are posted, wait for a connection, or are in one. */
export function linkBytesOf({ link, queued, takenBefore }: Peer, posted: number): LinkBytes {
  const { bufferedBytes = 0, sentBytes = 0 } = link ?? {};
  return { held: bufferedBytes + queued.used + posted, taken: takenBefore + sentBytes - bufferedBytes };
}

/** The peer at the other end of a link. Its role is fixed by the first message. */
export interface Caller {
  id: PeerId;
  role: Role;
  /** A message has come on the link, so the peer has not refused our hello. */
  heard: boolean;
  /** When the link was made, in milliseconds. */
  since: number;
}
