/** The durable state of a data set: which ranges are open, finished or set aside. */
import type { PeerId } from '../../../protocol/map.js';
import type { DatasetSpec, SetAside } from '../../../protocol/samples.js';
import type { FileGrowth, FilePiece } from './ranges.js';

/** A range that was handed out and is neither finished nor set aside. */
export interface OpenRange {
  number: number;
  /** Place of the range in files that grow; in other files the place follows from the number. */
  piece?: FilePiece;
  session: PeerId;
  /** The worker that has leased the range; 0: nobody has, and it is handed out next. */
  worker: PeerId;
  /** The request that it was leased for last. */
  lease: number;
  /** Batches that are durable. */
  done: number;
  /** Batches that a worker has begun; `done` or more. */
  begun: number;
  /** Failures in a row at batch `failedAt`; -1: it has never failed. */
  failures: number;
  failedAt: number;
  /** Shards may hold more of it than `done`: its worker was lost, or they were loaded from a checkpoint. */
  partial?: true;
}

export interface DatasetState {
  name: string;
  spec: DatasetSpec;
  /** Ranges below this number have been handed out. */
  next: number;
  /** Open ranges by number, ascending; all are below `next`. */
  open: Map<number, OpenRange>;
  /** Number of finished ranges. */
  finished: number;
  /** Samples of the finished ranges of each epoch. */
  samples: number[];
  /** Samples of finished ranges in batches that another worker had begun before. */
  redone: number;
  setAside: SetAside[];
  /** The cursor of each file, when files grow; undefined: they do not. */
  growth?: FileGrowth[];
}
