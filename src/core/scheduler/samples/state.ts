/** What of a data set is durable: which ranges are open, finished or set aside. */
import type { PeerId } from '../../../protocol/map.js';
import type { DatasetSpec, SetAside } from '../../../protocol/samples.js';
import type { Growth, Piece } from './ranges.js';

/** A range that was handed out and is neither finished nor set aside. */
export interface OpenRange {
  number: number;
  /** Where it is, in files that grow; in others that follows from its number. */
  piece?: Piece;
  session: PeerId;
  /** Who works on it, and the request that it was leased for; 0: nobody, it is next. */
  worker: PeerId;
  lease: number;
  /** Batches that are durable, and that somebody has begun. */
  done: number;
  begun: number;
  /** Failures in a row at one batch. */
  failures: number;
  failedAt: number;
  /** Shards may hold more of it than `done`: its worker was lost, or they were loaded from a checkpoint. */
  partial?: true;
}

/** The durable part. */
export interface DatasetState {
  name: string;
  spec: DatasetSpec;
  /** Ranges below this number have been handed out. */
  next: number;
  /** By number, ascending. */
  open: Map<number, OpenRange>;
  finished: number;
  /** Samples of the finished ranges of each epoch. */
  samples: number[];
  redone: number;
  setAside: SetAside[];
  /** Of each file, when they grow: the cursor of the stream. */
  growth?: Growth[];
}
