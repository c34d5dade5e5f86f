/**
 * Which members of which groups may lack blocks now, so that no fault makes it more than r of a group. It
 * errs on the safe side: what a fault may have cost stays in the book until the job says, after the fault was
 * noticed, that it is whole again.
 */
import type { FrozenMap, PeerId } from '../../src/protocol/map.js';

export class PushLedger {
  private readonly lacking = new Map<number, Set<string>>();

  get empty(): boolean {
    return this.lacking.size === 0;
  }

  /** Would every group still have all but r members, if these nodes were lost now, too? */
  allows(map: FrozenMap, nodes: readonly PeerId[]): boolean {
    return map.groups.every((group) => {
      const members = new Set([...(this.lacking.get(group.id) ?? []), ...membersOn(map, group.id, nodes)]);
      return members.size <= map.pools[group.pool]!.r;
    });
  }

  add(map: FrozenMap, nodes: readonly PeerId[]): void {
    for (const { id } of map.groups) {
      const known = this.lacking.get(id) ?? new Set();
      for (const member of membersOn(map, id, nodes)) known.add(member);
      if (known.size > 0) this.lacking.set(id, known);
    }
  }

  clear(): void {
    this.lacking.clear();
  }
}

/** A mirror counts as the shard that it is about to become, a second parity as the first. */
function membersOn(map: FrozenMap, group: number, nodes: readonly PeerId[]): string[] {
  const { data, sinks } = map.groups[group]!;
  return [
    ...data.flatMap((entry, m) => (nodes.includes(entry.node) ? [`M${m}`] : [])),
    ...sinks.flatMap((sink) => (nodes.includes(sink.node) ? [`${sink.kind}${sink.index}`] : [])),
  ];
}
