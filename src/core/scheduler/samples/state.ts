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

export function newDataset(name: string, spec: DatasetSpec): DatasetState {
  const samples = new Array<number>(spec.epochs).fill(0);
  const growth = spec.follow && { growth: spec.files.map(() => ({ size: 0, given: 0 })) };
  const empty = { next: 0, open: new Map(), finished: 0, redone: 0, setAside: [] };
  return { name, spec, ...empty, samples, ...growth };
}

/**
 * True if for every open range it is known which batches were begun: its worker has said so (`told`), or has
 * handed the range back. A worker that was lost may have begun more batches than it reported.
 */
export function isExact(
  datasets: readonly DatasetState[],
  told: (name: string, range: OpenRange) => boolean,
): boolean {
  return datasets.every(({ name, open }) =>
    [...open.values()].every((range) => {
      const { worker, partial, begun, done } = range;
      return !partial && (told(name, range) || (worker === 0 && begun === done));
    }),
  );
}

interface SessionsOfRanges {
  sessions: ReadonlyMap<PeerId, { id: PeerId; leased: boolean }>;
  datasets: readonly DatasetState[];
}

/** Sessions of ranges that were over, and held for a checkpoint that an earlier scheduler was making. */
export function orphans({ sessions, datasets }: SessionsOfRanges): PeerId[] {
  const open = new Set(datasets.flatMap((state) => [...state.open.values()].map(({ session }) => session)));
  return [...sessions.values()].flatMap(({ id, leased }) => (leased || open.has(id) ? [] : [id]));
}
