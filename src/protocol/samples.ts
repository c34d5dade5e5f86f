/**
 * Messages between a worker and the scheduler about samples: a data set is cut into ranges, a worker leases
 * one at a time, reports its batches and hands it back.
 */
import type { ErrorCode } from '../common/errors.js';
import type { PeerId } from './map.js';

/** A staleness that bounds nothing. */
export const UNBOUNDED = Number.MAX_SAFE_INTEGER;

/** The parts of a schema that say what samples are. */
export const SCHEMA_PARTS = ['label', 'dense', 'sparse', 'weight', 'time'] as const;
export type SchemaPart = (typeof SCHEMA_PARTS)[number];

/** A file of a data set: every worker has its own path to it. */
export interface DatasetFile {
  name: string;
  size: number;
  rangeBytes: number;
  /** Differs between files of one name and size, with other content; undefined: not known. */
  mark?: string;
}

/** Files by name and size, and how they are cut; every worker has its own path to them. */
export interface DatasetSpec {
  /**
   * True: the files grow. Their sizes here are 0, and `extendDataset` tells the bytes that are there. Such a
   * data set has one epoch, in the order of the files' bytes.
   */
  follow?: boolean;
  files: DatasetFile[];
  /** Samples of a full batch. */
  batch: number;
  epochs: number;
  seed: number;
  /** True: the ranges of an epoch are in an order that the seed chooses; else in that of the files. */
  shuffle: boolean;
  /** Most batches that a worker may be ahead of the slowest one. */
  staleness: number;
  /**
   * The meaning of the columns of the files, as a text for each part of their schema. Workers with another
   * one would train other samples under the same numbers. Undefined: nobody has said it, and it may be any.
   */
  schema?: Partial<Record<SchemaPart, string>>;
}
/** The samples whose lines start in bytes begin..end of a file. */
export interface SampleRange {
  /** Epoch x ranges of an epoch + rank in the order of the epoch. */
  number: number;
  epoch: number;
  file: number;
  begin: number;
  end: number;
}
/** Registers a data set. A later sender only checks that its specification means the same. */
export interface OpenDataset {
  t: 'openDataset';
  id: number;
  name: string;
  spec: DatasetSpec;
}
export interface DatasetOpened {
  t: 'datasetOpened';
  id: number;
  /** The specification as it was registered. */
  spec?: DatasetSpec;
  code?: ErrorCode;
  message?: string;
}
/**
 * Files of a data set with `follow` have grown: whole lines up to these sizes are there, one size for each
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
/** Asks for a range. The answer comes when there is a range to work on, or none will come any more. */
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
  /** The leased range; absent: every range is finished or set aside. */
  range?: SampleRange;
  /** Session of the range, under which its batches are pushed. */
  session: PeerId;
  /** Proof that this worker had the lease, so it may push under the session. */
  proof?: Uint8Array;
  /** Batches of the range that are durable: from the first one on. */
  done: number;
  /** Batches of the range that a worker has begun; at least `done`. */
  begun: number;
  /** Time without a report after which a lease is lost. */
  leaseMs: number;
}
/** Report on a lease, without an answer. `lease` is the id of the `acquire` that it was given for. */
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
/** The lease is lost: another worker works on the range now, or has finished it. */
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
  /** Session of the range, with its proof: a worker that was given up may have finished the range. */
  session?: PeerId;
  proof?: Uint8Array;
  outcome: 'finished' | 'returned' | 'failed';
  done: number;
  begun: number;
  /** Samples of the whole range; known when it has been read. */
  samples: number;
  /** Samples of batches that another worker had begun before. */
  redone: number;
  /** The batch that failed; `code` and `message` say why. */
  batch?: number;
  code?: ErrorCode;
  message?: string;
}
export interface Released {
  t: 'released';
  id: number;
}
/**
 * Asks whether this worker may begin its next batch. The answer comes when it may (bounded staleness).
 */
export interface Advance {
  t: 'advance';
  id: number;
  name: string;
  /** Batches that this worker has begun, of all ranges. */
  clock: number;
}
export interface Advanced {
  t: 'advanced';
  id: number;
  /** The worker may begin a batch as long as it has begun no more batches than this. */
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
/** A range that failed too often at one batch: nobody trains it any more. */
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
  /** Ranges of all epochs (of growing files: so far); `finished` and `open` count some of these. */
  ranges: number;
  finished: number;
  open: number;
  /** Samples of the finished ranges of each epoch. */
  samples: number[];
  /** Samples of batches that were begun again after a worker was lost. */
  redone: number;
  setAside: SetAside[];
  /** Every range is finished or set aside. Never true while files are followed. */
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
