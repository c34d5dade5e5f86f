/**
 * The account of the evictions that a node keeps for who asks for them. Rings share the limit in equal parts,
 * so one that nobody empties takes nothing from the others.
 */
import { invariant } from '../../common/errors.js';

export class EvictedBytes {
  /** Bytes of all rings of the node. */
  used = 0;
  /** Number of rings. */
  rings = 0;

  /** `limit`: in bytes, `Policy.maxEvictedBytes`. */
  constructor(private readonly limit: number) {}

  /** Bytes that each ring may have. When a ring begins, others have more until they are trimmed. */
  get share(): number {
    return Math.floor(this.limit / Math.max(1, this.rings));
  }

  /** Negative `bytes` are forgotten. */
  add(bytes: number): void {
    this.used += bytes;
    invariant(this.used >= 0, 'no more evictions are forgotten than were kept', { bytes, left: this.used });
  }
}
