/** What a node lends to its owners, beside what it lends to every machine. */
import type { NativeShard } from '../../native.js';
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf, Refusal } from '../../protocol/messages.js';
import type { CoreHost } from '../shared/host.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';

/** What an owner leaves for later in a step or a turn. */
export interface Deferred {
  flush(): void;
  serveWaiting(): void;
}

export interface OwnerHost extends CoreHost {
  readonly waiting: WaitingBytes;
  /** Acknowledgements of a step are collected into one message per client. */
  acknowledge(client: PeerId, g: number, m: number, cseq: number, refused?: Refusal): void;
  /** Answers whoever pushed for this client last. */
  tell(client: PeerId, message: MessageOf<'gap'> | MessageOf<'lost'>): void;
  /** Rows of one item of a pull; items of a step are collected into one message per pull. */
  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void;
  /** The engine's answer to a section of a pull: rows, or a status. The host decides in which memory. */
  pull(shard: NativeShard, section: Uint8Array): Uint8Array | number;
  /** The owner has an open batch: `flush` is called at the end of the turn. */
  markDirty(owner: Deferred): void;
  /**
   * Requests that wait may be served now: `serveWaiting` is called at the end of the step. It is never called
   * within the step, because serving flushes, a flush may commit, and a commit asks to serve again.
   */
  serveLater(owner: Deferred): void;
}
