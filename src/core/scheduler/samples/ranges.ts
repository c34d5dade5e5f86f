/**
 * How a data set is cut into byte ranges of its files. The ranges are the same in every epoch; their order
 * depends on the seed and the epoch alone. The files are not read for it, because a line belongs to the range
 * in which it starts.
 */
import type { DatasetSpec, SampleRange } from '../../../protocol/samples.js';

export interface FilePiece {
  file: number;
  begin: number;
  end: number;
}

/**
 * A file that grows: whole lines up to `size` are there, and the ranges up to `given` have been handed out.
 */
export interface FileGrowth {
  size: number;
  given: number;
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

/**
 * Takes new sizes; returns the files that have grown. Files only grow, so a size below the known one is an
 * older look at the file.
 */
export function grow(growth: readonly FileGrowth[], sizes: readonly number[]): number[] {
  return [...growth.entries()].flatMap(([file, grown]) => {
    if (sizes[file]! <= grown.size) return [];
    grown.size = sizes[file]!;
    return [file];
  });
}

/** Number of ranges that are available and not handed out. */
export function rangesLeft({ files }: Pick<DatasetSpec, 'files'>, growth: readonly FileGrowth[]): number {
  return growth.reduce((sum, { size, given }, file) => {
    return sum + Math.ceil((size - given) / files[file]!.rangeBytes);
  }, 0);
}

/**
 * Hands out the next range of growing files, from the file with the most bytes left. Undefined: none has any.
 */
export function nextPiece(
  { files }: Pick<DatasetSpec, 'files'>,
  growth: FileGrowth[],
): FilePiece | undefined {
  const left = growth.map(({ size, given }) => size - given);
  const most = Math.max(...left);
  if (most <= 0) return undefined;
  const file = left.indexOf(most);
  const grown = growth[file]!;
  const begin = grown.given;
  grown.given = Math.min(grown.size, begin + files[file]!.rangeBytes);
  return { file, begin, end: grown.given };
}

/** The ranges of a data set by number: epoch after epoch. */
export class RangePlan {
  /** By file: the number of ranges of an epoch before it. */
  private readonly before: number[] = [];
  /** Number of ranges in one epoch. */
  private readonly count: number;
  /**
   * Orders of the newest epochs. Several are needed: an epoch begins while the last ranges of the previous
   * one are open.
   */
  private readonly orders = new Map<number, Uint32Array>();

  constructor(private readonly spec: DatasetSpec) {
    let count = 0;
    for (const { size, rangeBytes } of spec.files) {
      this.before.push(count);
      count += Math.ceil(size / rangeBytes);
    }
    this.count = count;
  }

  /** Number of ranges in all epochs. */
  get total(): number {
    return this.count * this.spec.epochs;
  }

  /** `piece`: where the range was cut, in files that grow. */
  at(number: number, piece?: FilePiece): SampleRange {
    if (piece) return { number, epoch: 0, ...piece };
    const epoch = Math.floor(number / this.count);
    const at = number % this.count;
    return { number, epoch, ...this.pieceAt(this.spec.shuffle ? this.order(epoch)[at]! : at) };
  }

  /** The range of an epoch at this place in the order of the files. */
  private pieceAt(index: number): FilePiece {
    // The last file that does not begin behind it; an empty one has the same number as the next.
    let [file, end] = [0, this.before.length];
    while (end - file > 1) {
      const middle = (file + end) >>> 1;
      if (this.before[middle]! <= index) file = middle;
      else end = middle;
    }
    const { size, rangeBytes } = this.spec.files[file]!;
    const begin = (index - this.before[file]!) * rangeBytes;
    return { file, begin, end: Math.min(size, begin + rangeBytes) };
  }

  private order(epoch: number): Uint32Array {
    const known = this.orders.get(epoch);
    if (known) return known;
    const order = new Uint32Array(this.count);
    for (let index = 0; index < this.count; index++) order[index] = index;
    const random = splitMix(Math.imul(this.spec.seed + 1, 0x9e3779b1) ^ Math.imul(epoch + 1, 0x85ebca6b));
    for (let last = order.length - 1; last > 0; last--) {
      const other = random() % (last + 1);
      [order[last], order[other]] = [order[other]!, order[last]!];
    }
    for (const old of this.orders.keys()) if (this.orders.size >= 4) this.orders.delete(old);
    this.orders.set(epoch, order);
    return order;
  }
}
