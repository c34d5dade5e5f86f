/**
 * Messages between a worker and the scheduler about samples: a data set is cut into ranges, a worker leases
 * one at a time, reports its batches and hands it back.
 */
import type { ErrorCode } from '../errors.js';
import type { PeerId } from './map.js';

/** A staleness that bounds nothing. */
export const UNBOUNDED = Number.MAX_SAFE_INTEGER;

/** Files by name and size, and how they are cut; every worker has its own path to them. */
export interface DatasetSpec {
  /**
   * The files grow: their sizes here are 0, `extendDataset` says what there is. One epoch, in the order of
   * the files' bytes.
   */
  follow?: boolean;
  files: { name: string; size: number; rangeBytes: number }[];
  /** Samples of a full batch. */
  batch: number;
  epochs: number;
  seed: number;
  /** Ranges of an epoch in an order that the seed chooses; else in the order of the files. */
  shuffle: boolean;
  /** No worker is more than so many batches ahead of the slowest. */
  staleness: number;
}
/** The samples whose lines start in bytes begin..end of a file. */
export interface SampleRange {
  /** epoch x ranges + rank in the order of the epoch */
  number: number;
  epoch: number;
  file: number;
  begin: number;
  end: number;
}
/** Whoever comes first registers the data set; for others it is a check that they mean the same. */
export interface OpenDataset {
  t: 'openDataset';
  id: number;
  name: string;
  spec: DatasetSpec;
}
export interface DatasetOpened {
  t: 'datasetOpened';
  id: number;
  /** As it was registered. */
  spec?: DatasetSpec;
  code?: ErrorCode;
  message?: string;
}
/**
 * Files of a data set that follows them have grown: whole lines up to these sizes are there, one for each
 * file.
 */
export interface ExtendDataset {
  t: 'extendDataset';
  id: number;
  name: string;
  sizes: number[];
}
export interface DatasetExtended {
  t: 'datasetExtended';
  id: number;
  /** The sizes that are durable, whichever worker reported them; empty with `code`. */
  sizes: number[];
  code?: ErrorCode;
  message?: string;
}
/** Answered when there is a range to work on, or none will come any more. */
export interface Acquire {
  t: 'acquire';
  id: number;
  name: string;
  /** Batches that this worker has made durable, of all ranges. */
  clock: number;
}
export interface Acquired {
  t: 'acquired';
  id: number;
  /** Not set: every range is finished or set aside. */
  range?: SampleRange;
  /** The client that its batches are pushed as. */
  session: PeerId;
  /** Shows that this worker had the lease: it may push under the session. */
  proof?: Uint8Array;
  /** Batches that are durable, and batches that somebody had begun. */
  done: number;
  begun: number;
  /** A lease that is not reported on for so long is lost. */
  leaseMs: number;
}
/** One way. `lease` is the id of the `acquire` that it was given for. */
export interface RangeProgress {
  t: 'rangeProgress';
  name: string;
  number: number;
  lease: number;
  done: number;
  begun: number;
  /** Batches that this worker has made durable, of all ranges. */
  clock: number;
}
/** Somebody else works on this range now, or has finished it. */
export interface RangeLost {
  t: 'rangeLost';
  name: string;
  number: number;
  lease: number;
}
export interface Release {
  t: 'release';
  id: number;
  name: string;
  number: number;
  lease: number;
  /** Of the range, with its proof: a worker that was given up may have finished it all the same. */
  session?: PeerId;
  proof?: Uint8Array;
  outcome: 'finished' | 'returned' | 'failed';
  done: number;
  begun: number;
  /** Of the whole range; known when it has been read. */
  samples: number;
  /** Samples of batches that another worker had begun before. */
  redone: number;
  /** What failed, and at which batch. */
  batch?: number;
  code?: ErrorCode;
  message?: string;
}
export interface Released {
  t: 'released';
  id: number;
}
/**
 * May this worker, with so many durable batches, begin the next? Answered when it may (bounded staleness).
 */
export interface Advance {
  t: 'advance';
  id: number;
  name: string;
  /** Batches that it has begun. */
  clock: number;
}
export interface Advanced {
  t: 'advanced';
  id: number;
  /** It may begin batches as long as it has begun no more than this. */
  until: number;
}
export interface DatasetRequest {
  t: 'datasetStatus';
  id: number;
  name: string;
}
export interface DatasetReply {
  t: 'datasetReply';
  id: number;
  status?: DatasetStatus;
}
/** A range that failed again and again at one batch: nobody trains it any more. */
export interface SetAside extends SampleRange {
  fileName: string;
  batch: number;
  attempts: number;
  code: ErrorCode;
  message: string;
}
export interface DatasetStatus {
  name: string;
  epochs: number;
  /** Ranges of all epochs (of growing files: so far), and how many of them are finished and at work. */
  ranges: number;
  finished: number;
  open: number;
  /** Samples of the finished ranges of each epoch. */
  samples: number[];
  /** Samples of batches that were begun again after a worker was lost. */
  redone: number;
  setAside: SetAside[];
  /** Never, as long as files are followed. */
  complete: boolean;
}

export type SampleMessage =
  | OpenDataset
  | DatasetOpened
  | ExtendDataset
  | DatasetExtended
  | Acquire
  | Acquired
  | RangeProgress
  | RangeLost
  | Release
  | Released
  | Advance
  | Advanced
  | DatasetRequest
  | DatasetReply;
