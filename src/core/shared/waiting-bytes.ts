/**
 * The account of all bytes that wait on one node: messages for a newer map, pushes and pulls. They share one
 * limit. A quarter of it is reserved for pulls. A push over the limit is dropped and the client resends it; a
 * pull is rejected with LIMIT.
 */
const RESERVED_FOR_PULLS = 1 / 4;

export class WaitingBytes {
  used = 0;

  constructor(private readonly limit: number) {}

  /** False: there is no room, nothing was taken. */
  take(bytes: number): boolean {
    if (this.used + bytes > this.limit) return false;
    this.used += bytes;
    return true;
  }

  /** For a push. */
  takeForPush(bytes: number): boolean {
    return this.used + bytes <= this.limit * (1 - RESERVED_FOR_PULLS) && this.take(bytes);
  }

  give(bytes: number): void {
    this.used -= bytes;
  }
}
