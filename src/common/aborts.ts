/**
 * A signal has one listener, whoever waits for its abort: a program may give it to any number of requests at
 * once, and Node warns of more than ten listeners as of a leak.
 */

interface Waiting {
  callbacks: Set<() => void>;
  /** The listener of the signal. Signals of other makers may call it without `this`. */
  tell(): void;
}

const waiting = new WeakMap<AbortSignal, Waiting>();

/**
 * Calls `callback` when the signal is aborted. The function that is returned takes that back, and may be
 * called at any time.
 */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (!signal) return () => {};
  // Two requests may wait with the same function.
  const one = () => callback();
  const { callbacks, tell } = waiting.get(signal) ?? waitingFor(signal);
  if (callbacks.size === 0) signal.addEventListener('abort', tell);
  callbacks.add(one);
  return () => {
    if (callbacks.delete(one) && callbacks.size === 0) signal.removeEventListener('abort', tell);
  };
}

function waitingFor(signal: AbortSignal): Waiting {
  const callbacks = new Set<() => void>();
  const tell = () => {
    signal.removeEventListener('abort', tell);
    for (const one of [...callbacks]) {
      // An earlier one may have taken it back.
      if (!callbacks.delete(one)) continue;
      try {
        one();
      } catch (error) {
        // The others hear of the abort all the same.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  };
  const known = { callbacks, tell };
  waiting.set(signal, known);
  return known;
}
