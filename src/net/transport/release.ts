/**
 * Frees the memory of large arrays at once instead of at a garbage collection. Rows, deltas and frames live
 * outside of V8's heap, and V8 counts them as pressure on it: after every 64 MB of them it collects the whole
 * heap, which takes 10 to 20 ms. With 1 MB per answer that was more than half of a server's processor time.
 *
 * Node 20 has no call to free an ArrayBuffer. Transferring it detaches it from its owner, and a port whose
 * other end is closed drops what it is given.
 */
import { MessageChannel } from 'node:worker_threads';

/** Smaller arrays are left to the garbage collector: a transfer would cost more than it saves. */
export const RELEASED_FROM = 16 * 1024;

const { port1: nowhere, port2 } = new MessageChannel();
port2.close();

/**
 * Frees arrays that nothing refers to any more; they are empty afterwards. Only an array that spans its whole
 * buffer is freed, because other views may share the buffer of a smaller one.
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
