/**
 * Where a reader of the evictions of one shard is. An answer that begins elsewhere than where the reader is
 * leaves a gap: between the two, keys may have been evicted that nobody tells any more.
 */
import type { MessageOf } from '../../protocol/messages.js';

/** Position in the evictions of a shard; `gen` 0: before the first answer. */
export interface EvictionPlace {
  /** Generation of the ownership. */
  gen: number;
  /** Number of the next eviction. */
  number: number;
}

export class EvictionReader {
  constructor(
    /** Where the reader goes on. */
    public place: EvictionPlace = { gen: 0, number: 0 },
  ) {}

  /** The fields of the next question that say where it goes on. */
  get asked(): { gen: number; from: number } {
    return { gen: this.place.gen, from: this.place.number };
  }

  /** True: between this place and the answer there may have been evictions. */
  misses({ gen, from }: MessageOf<'evicted'>): boolean {
    const { place } = this;
    return place.gen !== 0 && (gen !== place.gen || from !== place.number);
  }

  /** Goes on behind the `count` keys of an answer. True: there is a gap before them. */
  take(answer: MessageOf<'evicted'>, count: number): boolean {
    const isGap = this.misses(answer);
    this.place = { gen: answer.gen, number: answer.from + count };
    return isGap;
  }
}
