/** The memory that attacked PS may have. */

/** `--memory` of each PS, and what a PS may have beside it. */
export const OVERLOAD_MEMORY = { memoryMiB: 512, overheadMiB: 447 } as const;
/** Peaks may be above the sum of limits by so much: allocators keep what they have freed. */
const TOLERANCE = 1.15;

export interface MemoryLimits {
  memoryBytes: number;
  /** Bytes that the limits of a PS allow beside `memoryBytes`. */
  overheadBytes: number;
}

/** Most resident bytes that a PS may have. */
export function boundOf({ memoryBytes, overheadBytes }: MemoryLimits): number {
  return (memoryBytes + overheadBytes) * TOLERANCE;
}
