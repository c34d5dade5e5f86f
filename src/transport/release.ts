/**
 * Gives the memory of large arrays back now instead of at some garbage collection. Rows, deltas and frames
 * live outside of V8's heap, which counts them as pressure on it: after every 64 MB of them it collects the
 * whole heap, 10 to 20 ms of work to free what nobody has looked at for long. With 1 MB per answer that was
 * more than half of a server's processor time.
 *
 * Node 20 has no call for it, but an ArrayBuffer that is transferred leaves its owner at once, and a port
 * whose other end is closed drops what it is given.
 */
import { MessageChannel } from 'node:worker_threads';

/** Below this the heap is not the problem and a transfer costs more than it saves. */
export const RELEASED_FROM = 16 * 1024;

const { port1: nowhere, port2 } = new MessageChannel();
port2.close();

/**
 * Frees arrays that nothing refers to any more; they are empty afterwards. Only what has all of its buffer is
 * freed: a view may have neighbours.
 */
export function release(arrays: readonly Uint8Array[]): void {
  for (const { buffer, byteLength } of arrays) {
    if (byteLength < RELEASED_FROM || byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer))
      continue;
    try {
      nowhere.postMessage(null, [buffer]);
    } catch {
      // Memory that cannot be transferred (someone marked it) waits for the garbage collector, as all memory
      // may.
    }
  }
}
