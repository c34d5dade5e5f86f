/** The inputs of a node. */
import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Role } from '../../protocol/senders.js';
import type { RowsBuffer } from '../shard/host.js';
import type { FetchAnswer } from './loading.js';
import type { RowsBuffers } from './request-queue.js';
import type { StoreAnswer } from './saving.js';

export type NodeInput =
  /**
   * `role`: that of the connection that the message came on. `buffer`: where the rows of a pull go that is
   * answered in this step; default: memory of the engine.
   */
  | {
      kind: 'message';
      from: PeerId;
      role: Role;
      message: Message;
      parts: readonly Uint8Array[];
      buffer?: RowsBuffer | undefined;
    }
  /** A connection to this peer is up (again). */
  | { kind: 'peerUp'; peer: PeerId }
  /**
   * Bytes that the links of clients hold, after all effects so far have been carried out. The runtime reports
   * on `answers.charged()` at the end of a turn, on `answers.clients()` at each tick, and on a client when
   * its socket takes something.
   */
  | { kind: 'taken'; links: readonly (readonly [client: PeerId, bytes: number])[] }
  /** The link of a client is closed, so that nothing that was sent on it arrives any more. */
  | { kind: 'gone'; client: PeerId }
  | { kind: 'flush' }
  /**
   * The event loop has come round: requests that wait are served, as many as fit a turn, and background work
   * goes on. The runtime hands turns in while `needsTurn` is true, and looks at sockets and timers between
   * them. `buffers`: for the answers to pulls.
   */
  | { kind: 'turn'; buffers?: RowsBuffers | undefined }
  /** The answer to an effect `store`. */
  | StoreAnswer
  /** The answer to an effect `fetch`. */
  | FetchAnswer
  | { kind: 'tick'; now: number };
