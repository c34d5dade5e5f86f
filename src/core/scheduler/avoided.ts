/** Living nodes that get nothing new for a while, because a sink stalled there or the memory ran out. */
import type { PeerId } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';

export class Avoided {
  /** Node -> time until which it gets nothing new, unless there is no other place. */
  private readonly slow = new Map<PeerId, number>();
  /** Node -> time until which it gets nothing at all: the system has refused it memory. */
  private readonly refusing = new Map<PeerId, number>();
  /** Milliseconds of the newest tick. */
  private now = 0;

  constructor(private readonly policy: Pick<SchedulerPolicy, 'avoidMs'>) {}

  get all(): ReadonlySet<PeerId> {
    return new Set([...this.slow.keys(), ...this.refusing.keys()]);
  }

  /** The part of `all` that gets nothing even if it fits nowhere else. */
  get full(): ReadonlySet<PeerId> {
    return new Set(this.refusing.keys());
  }

  isFull(node: PeerId): boolean {
    return this.refusing.has(node);
  }

  /** A sink has stalled there. */
  stalled(node: PeerId): void {
    this.slow.set(node, this.now + this.policy.avoidMs);
  }

  /** The system has refused it memory. */
  refused(node: PeerId): void {
    this.refusing.set(node, this.now + this.policy.avoidMs);
  }

  /** True if some may get something again. */
  tick(now: number): boolean {
    this.now = now;
    let changed = false;
    for (const nodes of [this.slow, this.refusing]) {
      for (const [node, until] of nodes) if (until <= now) changed = nodes.delete(node);
    }
    return changed;
  }
}
