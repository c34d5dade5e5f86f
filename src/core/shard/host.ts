/** The interfaces of an owner to its node and to its stream. */
import type { Extent } from '../../engine/native.js';
import type { Group, PeerId } from '../../protocol/map.js';
import type { MessageOf, Refusal, StreamId } from '../../protocol/messages.js';
import type { Dedup } from '../shared/dedup.js';
import type { EvictedBytes } from '../shared/evicted-bytes.js';
import type { CoreHost } from '../shared/host.js';
import type { Turn } from '../shared/turn.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';
import type { StreamBatch } from './replicas.js';

/** Work that an owner leaves for the end of a step or a turn. */
export interface Deferred {
  flush(): void;
  serveWaiting(): void;
}

/** One item of a pull: the section of one shard. */
export interface PullItem {
  readonly client: PeerId;
  /** Number of the pull, which its answer repeats. */
  readonly id: number;
  /** Number of the first message that asked for it: those of one client with the same one are repeats. */
  readonly first: number;
  /** Index of the item in the pull. */
  readonly item: number;
  /** Number of its rows. */
  readonly rows: number;
  /** Size of its answer. */
  readonly bytes: number;
  /** When the pull came, by the clock of `Meter`. */
  readonly at: number;
  /** When the pull came, in milliseconds of the clock of ticks. */
  readonly since: number;
}

/** Memory for the rows of a pull, one section after the other. */
export interface RowsBuffer {
  readonly memory: Uint8Array;
  /** Offset in `memory` of the next rows. */
  readonly at: number;
  /** Notes that rows were written at `at`, or that they did not fit and have memory of their own. */
  took(rows: Uint8Array): void;
}

/** Memory for the rows of an answer that is gathered in several turns. */
export interface AnswerMemory extends RowsBuffer {
  /** The answer is not sent after all. */
  drop(): void;
}

/** An owner of whose pulls some wait for room for their answers. */
export interface PullOwner {
  /** There is room, and the answer is charged. `own`: memory for it, from which it is sent without a copy. */
  serveCharged(pull: PullItem, section: Uint8Array, own?: AnswerMemory): void;
  /**
   * Reads the rows of `slice` to `at` in `memory`. False: that cannot be, so the pull was rejected, or waits
   * for lost rows with its whole `section`.
   */
  readSlice(pull: PullItem, section: Uint8Array, slice: Uint8Array, memory: Uint8Array, at: number): boolean;
  /** All slices were read. */
  serveSliced(pull: PullItem, rows: Uint8Array): void;
  /** The pull has waited for too long. */
  expire(pull: PullItem): void;
}

/** Room for answers that sockets have not taken, of all shards of the node. */
export interface AnswerRoom {
  /**
   * Charges an answer to its client and to the turn before it is gathered. False: there is no room, so the
   * pull waits.
   */
  take(pull: PullItem): boolean;
  /** The answer was not gathered after all. */
  giveBack(pull: PullItem): void;
  /** Keeps a pull until there is room for its answer. False: too much waits already. */
  wait(owner: PullOwner, pull: PullItem, section: Uint8Array): boolean;
}

/** The services that a node has for its owners, beside those for every machine. */
export interface OwnerHost extends CoreHost {
  /** The newest second of the job that this node was told; it never falls. */
  readonly seconds: number;
  /** Account of all bytes that wait on this node. */
  readonly waiting: WaitingBytes;
  readonly answers: AnswerRoom;
  /** Account of the evictions that are kept on this node. */
  readonly evicted: EvictedBytes;
  /** Rows and bytes that this turn of the event loop has had. */
  readonly turn: Turn;
  /** Acknowledgements of a step are collected into one message per client. */
  acknowledge(client: PeerId, g: number, m: number, cseq: number, refused?: Refusal): void;
  /** Answers the peer that pushed for this client last. */
  tell(client: PeerId, message: MessageOf<'gap'> | MessageOf<'lost'>): void;
  /** Answers one item of a pull with its rows. Items of a step are collected into one message per pull. */
  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void;
  /** As `answer`, in a message of its own: rows beside them would be copied with them. */
  answerAlone(client: PeerId, id: number, item: number, rows: Uint8Array): void;
  /** As of the node's hooks. */
  contentMemory(bytes: number): AnswerMemory | undefined;
  /** The owner has an open batch: `flush` is called at the end of the turn. */
  markDirty(owner: Deferred): void;
  /**
   * Requests that wait may be served now: `serveWaiting` is called in the next turn. It is never called
   * within the step, because serving flushes, a flush may commit, and a commit asks to serve again.
   */
  serveLater(owner: Deferred): void;
}

/**
 * RESTORE: the shard is loaded from a checkpoint, and no sink has heard of it. FENCE: the owner waits for the
 * promises of all sinks. START: it waits until they are at the base. ACTIVE: it serves.
 */
export type StreamPhase = 'RESTORE' | 'FENCE' | 'START' | 'ACTIVE';

/** The owner of a stream, which the stream tells of its progress. */
export interface StreamOwner {
  readonly group: Group;
  readonly member: number;
  readonly gen: number;
  /** The shard was made with its group, empty, so it needs no take-over. */
  readonly born: boolean;
  /** The shard is to be loaded from a checkpoint, so it needs no take-over. */
  readonly restores: boolean;
  extents(): Extent[];
  /** @throws BAD_FRAME when the shard cannot have had these extents */
  checkExtents(extents: Extent[]): void;
  /** All sinks have agreed on this state: the owner serves from here. */
  activated(dedup: Dedup, extents: Extent[]): void;
  /** A batch has left to the sinks. */
  appended(batch: StreamBatch): void;
  /** These pushes, skips and ends of sessions are durable. */
  committed(ids: readonly StreamId[]): void;
  /** No sink has a stream of the shard. */
  lost(reason: string): void;
}
