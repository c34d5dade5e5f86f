/**
 * Processes that want to end and cannot be emptied, because too few would be left. Each is recovered from
 * parity, one after the other: who asks while others lack, or are about to end, is to stay until what those
 * held is there again (rule 30).
 */
import type { ClusterMap, Group, PeerId } from '../../../protocol/map.js';
import { type ClusterView, isIndispensable } from '../../placement/health.js';

export class Ending {
  /** Until when they are expected to end. */
  private readonly until = new Map<PeerId, number>();

  /** It was told that it cannot be emptied. */
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
