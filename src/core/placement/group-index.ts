/**
 * Answers to questions about all groups that placement asks often, kept up to date group by group: a new map
 * of thousands of groups differs in a few. The index is a function of the groups that it follows, and of
 * nothing else.
 */
import { type Group, hasMove, type PeerId, type Pool } from '../../protocol/map.js';
import { type ClusterView, isSpread } from './health.js';

/** A process, with the groups of which it holds a seat. */
export interface GroupHolding {
  readonly node: PeerId;
  readonly inc: number;
  readonly groups: ReadonlySet<number>;
}

/** Numbers of the groups that differ from `seen`, which has them afterwards. */
export function changedGroups(seen: Group[], groups: readonly Group[]): number[] {
  const changed: number[] = [];
  for (let g = 0; g < groups.length; g++) {
    if (seen[g] === groups[g]) continue;
    seen[g] = groups[g]!;
    changed.push(g);
  }
  return changed;
}

/**
 * True if repair changes nothing in the group as long as all processes that hold seats of it are alive:
 * whether or not they are complete, no sink is to be added, moved or handed over.
 */
function isQuiet(group: Group, pool: Pool): boolean {
  return isSpread(group, pool) && !hasMove(group) && group.sinks.length === pool.r;
}

export class GroupIndex {
  /** The newest list of groups. All other fields are derived from it. */
  private followed: readonly Group[] | undefined;
  /** Number of a group -> the group as it is counted here. */
  private readonly seen: Group[] = [];
  /** Node -> incarnation -> its groups. No entry is empty. */
  private readonly byNode = new Map<PeerId, Map<number, GroupHolding & { groups: Set<number> }>>();
  /** Node -> number of its data shards and sinks, at least 1. */
  private readonly loads = new Map<PeerId, number>();
  /** Groups that are not quiet. */
  private readonly unquiet = new Set<number>();
  /** Groups with the target of a move. */
  private readonly moves = new Set<number>();

  follow(groups: readonly Group[], pools: readonly Pool[]): this {
    // Lists of groups are replaced, never changed.
    if (groups === this.followed) return this;
    this.followed = groups;
    const before = this.seen.slice();
    for (const g of changedGroups(this.seen, groups)) {
      const [old, group] = [before[g], groups[g]!];
      if (old) this.count(old, -1);
      this.count(group, 1);
      mark(this.unquiet, g, !isQuiet(group, pools[group.pool]!));
      mark(this.moves, g, hasMove(group));
    }
    return this;
  }

  private count(group: Group, sign: 1 | -1): void {
    for (const { node, inc } of [...group.data, ...group.sinks]) {
      const load = (this.loads.get(node) ?? 0) + sign;
      if (load > 0) this.loads.set(node, load);
      else this.loads.delete(node);
      if (sign > 0) this.holdingOf(node, inc).groups.add(group.id);
      else this.drop(node, inc, group.id);
    }
  }

  private holdingOf(node: PeerId, inc: number): { groups: Set<number> } {
    let processes = this.byNode.get(node);
    if (!processes) {
      processes = new Map();
      this.byNode.set(node, processes);
    }
    let holding = processes.get(inc);
    if (!holding) {
      holding = { node, inc, groups: new Set() };
      processes.set(inc, holding);
    }
    return holding;
  }

  private drop(node: PeerId, inc: number, g: number): void {
    const processes = this.byNode.get(node);
    const holding = processes?.get(inc);
    holding?.groups.delete(g);
    if (holding?.groups.size === 0) processes!.delete(inc);
    if (processes?.size === 0) this.byNode.delete(node);
  }

  /** Number of data shards and sinks of each node that holds any. */
  get load(): ReadonlyMap<PeerId, number> {
    return this.loads;
  }

  /** Groups that repair may change although all processes that hold seats of them are alive. */
  get restless(): ReadonlySet<number> {
    return this.unquiet;
  }

  /** Groups in which something moves. */
  get moving(): ReadonlySet<number> {
    return this.moves;
  }

  /** Every process that holds a seat; node 0 stands for nobody. */
  *holdings(): Iterable<GroupHolding> {
    for (const processes of this.byNode.values()) yield* processes.values();
  }

  /** Groups of which the node holds a seat, whatever its incarnation. */
  groupsOf(node: PeerId): number[] {
    return [...(this.byNode.get(node)?.values() ?? [])].flatMap(({ groups }) => [...groups]);
  }

  /** The groups that repair may change, ascending. */
  toRepair(view: Pick<ClusterView, 'alive'>): number[] {
    const found = new Set(this.unquiet);
    for (const { node, inc, groups } of this.holdings())
      if (!view.alive(node, inc)) for (const g of groups) found.add(g);
    return [...found].sort((a, b) => a - b);
  }
}

function mark(set: Set<number>, g: number, is: boolean): void {
  if (is) set.add(g);
  else set.delete(g);
}
