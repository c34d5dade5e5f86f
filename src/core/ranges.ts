/**
 * How a data set is cut: byte ranges of its files, the same for every epoch, taken in an order that depends on the seed and
 * the epoch alone. Nobody needs the files for that: a line belongs to the range in which it starts.
 */
import type { DatasetSpec, SampleRange } from '../protocol/samples.js';

/** Ranges of one epoch, and epochs. */
export const MAX_RANGES = 1 << 20;
export const MAX_EPOCHS = 1 << 20;

interface Piece {
  file: number;
  begin: number;
  end: number;
}

/** u32 numbers from a seed (SplitMix32). */
export function splitMix(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
}

/** Number of ranges of one epoch; an empty file has none. */
export function rangeCount({ files }: Pick<DatasetSpec, 'files'>): number {
  return files.reduce((sum, { size, rangeBytes }) => sum + Math.ceil(size / rangeBytes), 0);
}

/** What is wrong with a specification, for people; undefined when it can be used. */
export function datasetProblem(spec: DatasetSpec): string | undefined {
  if (spec.files.length === 0) return 'a data set needs files';
  if (spec.epochs < 1 || spec.epochs > MAX_EPOCHS) return `a data set has 1 to ${MAX_EPOCHS} epochs`;
  if (spec.batch < 1) return 'a batch needs samples';
  if (spec.files.some(({ rangeBytes }) => rangeBytes < 1)) return 'a range needs bytes';
  const count = rangeCount(spec);
  return count > MAX_RANGES
    ? `${count} ranges are more than ${MAX_RANGES}: cut the files into larger ones`
    : undefined;
}

/** The ranges of a data set by number: epoch after epoch. */
export class RangePlan {
  private readonly pieces: Piece[];
  /** Orders of the newest epochs: while the last ranges of one are at work, the next one has begun. */
  private readonly orders = new Map<number, Uint32Array>();

  constructor(private readonly spec: DatasetSpec) {
    this.pieces = spec.files.flatMap(({ size, rangeBytes }, file) =>
      Array.from({ length: Math.ceil(size / rangeBytes) }, (_, index) => ({
        file,
        begin: index * rangeBytes,
        end: Math.min(size, (index + 1) * rangeBytes),
      })),
    );
  }

  /** Of all epochs. */
  get total(): number {
    return this.pieces.length * this.spec.epochs;
  }

  at(number: number): SampleRange {
    const epoch = Math.floor(number / this.pieces.length);
    const piece = this.pieces[this.order(epoch)[number % this.pieces.length]!]!;
    return { number, epoch, ...piece };
  }

  private order(epoch: number): Uint32Array {
    const known = this.orders.get(epoch);
    if (known) return known;
    const order = Uint32Array.from(this.pieces, (_, index) => index);
    if (this.spec.shuffle) {
      const random = splitMix(Math.imul(this.spec.seed + 1, 0x9e3779b1) ^ Math.imul(epoch + 1, 0x85ebca6b));
      for (let last = order.length - 1; last > 0; last--) {
        const other = random() % (last + 1);
        [order[last], order[other]] = [order[other]!, order[last]!];
      }
    }
    for (const old of this.orders.keys()) if (this.orders.size >= 4) this.orders.delete(old);
    this.orders.set(epoch, order);
    return order;
  }
}
