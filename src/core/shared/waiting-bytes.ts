/**
 * The account of all bytes that wait on one node: messages for a newer map, pushes and pulls. They share one
 * limit. A quarter of it is reserved for pulls. A push over the limit is dropped and the client resends it; a
 * pull is rejected with LIMIT.
 */
import { invariant } from '../../common/errors.js';
import type { BytesAccount } from './waiting-list.js';

const RESERVED_FOR_PULLS = 1 / 4;

export class WaitingBytes implements BytesAccount {
  /** Bytes that wait now: never below 0, never above `limit`. */
  used = 0;
  /** Number of messages, pushes and pulls that wait now. */
  count = 0;
  /** The same account, without what is reserved for pulls. */
  readonly forPushes: BytesAccount = {
    take: (bytes) => this.used + bytes <= this.limit * (1 - RESERVED_FOR_PULLS) && this.take(bytes),
    give: (bytes) => this.give(bytes),
  };

  constructor(private readonly limit: number) {}

  take(bytes: number): boolean {
    if (this.used + bytes > this.limit) return false;
    this.used += bytes;
    this.count++;
    return true;
  }

  give(bytes: number): void {
    this.used -= bytes;
    this.count--;
    invariant(this.used >= 0, 'only bytes that were taken are given back', { used: this.used, bytes });
  }
}
