/**
 * The account of what deltas take of a node's memory: batches of its owners that are not committed, the logs
 * of its sinks, and what its connections have to send.
 *
 * At the limit an owner applies no further pushes until acknowledgements come, except that a shard with
 * nothing uncommitted may always apply one batch: so every shard goes on, if slowly, whatever fills the
 * account. A sink takes every delta, because acknowledgements are what makes room; it tells owners that its
 * node is at the limit, and they wait likewise. So the limit is exceeded at most by one batch per shard and
 * by the deltas under way.
 */
import { invariant } from '../../errors.js';

export class DeltaBytes {
  private owners = 0;
  private sinks = 0;
  private connections = 0;

  constructor(private readonly limit: number) {}

  /** Bytes of batches that are not committed. */
  get uncommitted(): number {
    return this.owners;
  }

  /** Bytes of deltas that sinks may have to take back. */
  get logged(): number {
    return this.sinks;
  }

  get used(): number {
    return this.owners + this.sinks + this.connections;
  }

  get full(): boolean {
    return this.used >= this.limit;
  }

  /** `bytes` may be negative: they were committed. */
  addUncommitted(bytes: number): void {
    this.owners += bytes;
    invariant(this.owners >= 0, 'no more is committed than was uncommitted', { bytes, left: this.owners });
  }

  /** `bytes` may be negative: they cannot be taken back any more, or were. */
  addLogged(bytes: number): void {
    this.sinks += bytes;
    invariant(this.sinks >= 0, 'no more leaves the logs than was logged', { bytes, left: this.sinks });
  }

  /** What all connections of the node hold now. */
  setOutgoing(bytes: number): void {
    this.connections = bytes;
  }
}
