/**
 * Goodput: seconds of compute in batches that nobody had begun before, as a part of the seconds for which
 * workers were allocated. Every display of it divides here.
 */

export interface Allocation {
  /** Seconds of the models' work on batches that no worker had begun before. */
  productiveSeconds: number;
  /**
   * Seconds of all workers together, including starting, waiting, training batches again, and the time from a
   * worker's death until its next process.
   */
  allocatedSeconds: number;
}

/** Goodput of several runs together, from 0 to 1; undefined: nothing was allocated. */
export function goodputOf(all: readonly Allocation[]): number | undefined {
  const allocated = all.reduce((sum, { allocatedSeconds }) => sum + allocatedSeconds, 0);
  const productive = all.reduce((sum, { productiveSeconds }) => sum + productiveSeconds, 0);
  return allocated > 0 ? productive / allocated : undefined;
}
