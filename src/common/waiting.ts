/** Waits that end early: by a signal, or after a time. What was waited for is left to itself then. */
import { onAbort } from './aborts.js';

/** The promise, or `error()` as soon as the signal says so. */
export function unlessAborted<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
  error: () => Error,
): Promise<T> {
  if (!signal) return promise;
  promise.catch(() => {});
  if (signal.aborted) return Promise.reject(error());
  return new Promise((resolve, reject) => {
    const forget = onAbort(signal, () => reject(error()));
    promise.then(resolve, reject).finally(forget);
  });
}

/** The value of the promise; undefined when there is none after so long. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
