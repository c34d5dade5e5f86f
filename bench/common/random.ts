/** A deterministic stream of u32. */
export function randomU32(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.imul(state ^ (state >>> 15), 2246822519) >>> 0;
  };
}
