/**
 * Goodput: seconds of compute in batches that counted once, as a part of the seconds that workers were
 * allocated. Everything that shows it divides here.
 */

export interface Allocation {
  /** Of the models' work, on batches that nobody had begun before. */
  productiveSeconds: number;
  /** Of all workers together: starting, waiting, doing batches again, and being dead until they are back. */
  allocatedSeconds: number;
}

/** From 0 to 1; undefined: nothing was allocated. */
export function goodputOf(all: readonly Allocation[]): number | undefined {
  const allocated = all.reduce((sum, { allocatedSeconds }) => sum + allocatedSeconds, 0);
  const productive = all.reduce((sum, { productiveSeconds }) => sum + productiveSeconds, 0);
  return allocated > 0 ? productive / allocated : undefined;
}
