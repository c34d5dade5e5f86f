/** The functions of the addon that ask the operating system. They do not touch the engine. */
export interface NativeSystem {
  /**
   * Asks the kernel about TCP connections, by file descriptor. `out` gets four numbers for each: bytes that
   * this process wrote, bytes that the other side's kernel acknowledged, 1 while an acknowledgement is
   * outstanding (else 0), and the shortest round trip of late in milliseconds. The first is -1 where the
   * kernel knows nothing: no TCP connection, or not Linux.
   */
  tcpStates(fds: Int32Array, out: Float64Array): void;
  /**
   * The TCP connections of this process at a local port, without the `known` descriptors: pairs of descriptor
   * and bytes written. A library that hides its descriptors is found out by what it writes.
   */
  tcpWritten(port: number, known: Int32Array): Float64Array;
  /**
   * Maps the first `bytes` of a file that lives in memory, shared with whoever else maps it. `sealed`: it
   * must be sealed against shrinking, because access to what is gone ends the process. Linux only.
   * @throws UNREACHABLE, BAD_ARGUMENT, MEMORY_LIMIT, DEPENDENCY_MISSING
   */
  mapShared(path: string, bytes: number, sealed: boolean): ArrayBuffer;
  /**
   * Gives freed memory, which this process keeps for what comes next, back to the system. Some milliseconds
   * for each 100 MB of it. With another C library than glibc nothing is kept, and nothing is done.
   */
  trimMemory(): void;
  /**
   * V8 counts so many bytes more of arrays outside of its heap, or fewer; returns the sum. After every 64 MB
   * it collects the whole heap, which frees nothing where arrays are freed by hand.
   */
  countExternalMemory(bytes: number): number;
  /** Ends the mapping: the buffer and all views of it are empty from now on. */
  unmapShared(buffer: ArrayBuffer): void;
}
