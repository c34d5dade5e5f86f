/**
 * Processes that want to end and cannot be emptied, because too few nodes would be left. What such a process
 * held is recovered from parity, so they end one after the other: a process stays while other members of its
 * groups lack blocks or are about to end (rule 30).
 */
import type { ClusterMap, Group, PeerId } from '../../../protocol/map.js';
import { type ClusterView, isIndispensable } from '../../placement/health.js';

export class NodeEnding {
  /** Node -> milliseconds by which its process is expected to have ended. */
  private readonly until = new Map<PeerId, number>();

  /** The process was told that it cannot be emptied, so it is going to end. */
  add(id: PeerId, until: number, now: number): void {
    for (const [other, end] of this.until) if (end <= now) this.until.delete(other);
    this.until.set(id, until);
  }

  isNeeded(
    id: PeerId,
    { groups, pools }: ClusterMap,
    view: ClusterView,
    lost: (group: Group) => boolean,
    now: number,
  ): boolean {
    const nodes = view.nodes.filter((node) => (this.until.get(node.id) ?? 0) <= now);
    return isIndispensable(id, groups, pools, { ...view, nodes }, lost);
  }
}
