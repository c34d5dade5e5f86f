/**
 * Bounded concurrency for scans and tools. A job has thousands of shards and millions of rows: one request at
 * a time is slow, and all at once need too much memory.
 */

/** Runs `work` on every item, at most `limit` at once. The first error stops new work and is thrown. */
export async function eachAtMost<T>(
  limit: number,
  items: Iterable<T>,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let failed = false;
  const lane = async () => {
    while (!failed) {
      const next = iterator.next();
      if (next.done) return;
      try {
        await work(next.value);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const lanes = await Promise.allSettled(Array.from({ length: limit }, lane));
  for (const end of lanes) if (end.status === 'rejected') throw end.reason;
}

/**
 * Results of `work` in the order of `items`, with up to `depth` of them under way while the caller handles
 * one.
 */
export async function* pipelined<T, R>(
  depth: number,
  items: Iterable<T> | AsyncIterable<T>,
  work: (item: T) => Promise<R>,
): AsyncGenerator<R> {
  const pending: Promise<R>[] = [];
  const start = (item: T) => {
    const result = work(item);
    // The caller may stop before it awaits this result; its rejection must not be unhandled then.
    result.catch(() => undefined);
    pending.push(result);
  };
  for await (const item of items) {
    start(item);
    if (pending.length >= depth) yield await pending.shift()!;
  }
  for (let next = pending.shift(); next; next = pending.shift()) yield await next;
}

/** Ranges [start, end) of at most `size` that cover 0..count. */
export function* ranges(count: number, size: number): Generator<[start: number, end: number]> {
  for (let start = 0; start < count; start += size) yield [start, Math.min(count, start + size)];
}
