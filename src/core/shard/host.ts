/** What a node lends to its owners, beside what it lends to every machine. */
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf, Refusal } from '../../protocol/messages.js';
import type { CoreHost } from '../shared/host.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';

/** Has an open batch. */
export interface Flushed {
  flush(): void;
}

export interface OwnerHost extends CoreHost {
  readonly waiting: WaitingBytes;
  /** Acknowledgements of a step are collected into one message per client. */
  acknowledge(client: PeerId, g: number, m: number, cseq: number, refused?: Refusal): void;
  /** Answers whoever pushed for this client last. */
  tell(client: PeerId, message: MessageOf<'gap'> | MessageOf<'lost'>): void;
  /** Rows of one item of a pull; items of a step are collected into one message per pull. */
  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void;
  /** The owner has an open batch: it is flushed at the end of the turn. */
  markDirty(owner: Flushed): void;
}
