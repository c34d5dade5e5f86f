import { setTimeout as wait } from 'node:timers/promises';

/** Resolves after a time, or when the signal aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  // Only the signal can reject it.
  await wait(ms, undefined, { signal }).catch(() => {});
}
