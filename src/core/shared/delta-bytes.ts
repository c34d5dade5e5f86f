/**
 * The account of the memory that deltas take on a node: uncommitted batches of its owners, logs of its sinks,
 * and bytes that its connections have to send.
 *
 * At the limit an owner applies no further pushes until acknowledgements come, except that a shard with
 * nothing uncommitted may always apply one batch: so every shard goes on, if slowly, whatever fills the
 * account. A sink takes every delta, because only acknowledgements make room. It tells owners that its node
 * is at the limit, and then they wait, too. So the limit is exceeded at most by one batch per shard and by
 * the deltas under way.
 */
import { invariant } from '../../common/errors.js';

export class DeltaBytes {
  /** Bytes of uncommitted batches of all owners on this node; each `Stream` adds and takes off its own. */
  private owners = 0;
  /** Bytes in the logs of all sinks on this node; each `MemberStream` adds and takes off its own. */
  private sinks = 0;
  /** Bytes that connections held when the runtime last said so (`setOutgoing`). */
  private connections = 0;

  /** `limit`: in bytes, `Policy.maxDeltaBytes`. */
  constructor(private readonly limit: number) {}

  /** Bytes of uncommitted batches. */
  get uncommitted(): number {
    return this.owners;
  }

  /** Bytes of deltas that sinks may have to roll back. */
  get logged(): number {
    return this.sinks;
  }

  /** Bytes that connections have to send. */
  get outgoing(): number {
    return this.connections;
  }

  get used(): number {
    return this.owners + this.sinks + this.connections;
  }

  get full(): boolean {
    return this.used >= this.limit;
  }

  /** Negative `bytes` were committed, or their ownership is over. */
  addUncommitted(bytes: number): void {
    this.owners += bytes;
    invariant(this.owners >= 0, 'no more is committed than was uncommitted', { bytes, left: this.owners });
  }

  /** Negative `bytes` left a log: they are committed, or were rolled back. */
  addLogged(bytes: number): void {
    this.sinks += bytes;
    invariant(this.sinks >= 0, 'no more leaves the logs than was logged', { bytes, left: this.sinks });
  }

  /** Sets the bytes that all connections of the node hold now. */
  setOutgoing(bytes: number): void {
    this.connections = bytes;
  }
}
