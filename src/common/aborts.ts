/**
 * A signal has one listener, whoever waits for its abort: a program may give it to any number of requests at
 * once, and Node warns of more than ten listeners as of a leak.
 */

const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls `callback` when the signal is aborted. The function that is returned takes that back, and may be
 * called at any time.
 */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (!signal) return () => {};
  // Two requests may wait with the same function.
  const one = () => callback();
  const known = waiting.get(signal) ?? new Set();
  if (known.size === 0) {
    waiting.set(signal, known);
    signal.addEventListener('abort', tell);
  }
  known.add(one);
  return () => {
    if (known.delete(one) && known.size === 0) signal.removeEventListener('abort', tell);
  };
}

function tell(this: AbortSignal): void {
  this.removeEventListener('abort', tell);
  const known = waiting.get(this)!;
  for (const one of [...known]) {
    // An earlier one may have taken it back.
    if (!known.delete(one)) continue;
    try {
      one();
    } catch (error) {
      // The others hear of the abort all the same.
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}
