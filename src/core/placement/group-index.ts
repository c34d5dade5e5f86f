/**
 * What placement asks of all groups again and again, kept up to date group by group: a map of thousands of
 * groups changes in a few at a time. It is a function of the groups it follows, and of nothing else.
 */
import { type Group, hasMove, type PeerId, type Pool } from '../../protocol/map.js';
import { type ClusterView, isSpread } from './health.js';

/** The groups in which a process holds something. */
export interface Holding {
  readonly node: PeerId;
  readonly inc: number;
  readonly groups: ReadonlySet<number>;
}

/** Numbers of the groups that differ from those that were seen; afterwards they are seen. */
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
 * True if repair changes nothing in the group as long as all processes that hold something of it are alive:
 * whether or not they are complete, no sink is to be added, moved or handed over.
 */
function isQuiet(group: Group, pool: Pool): boolean {
  return isSpread(group, pool) && !hasMove(group) && group.sinks.length === pool.r;
}

export class GroupIndex {
  private followed: readonly Group[] | undefined;
  private readonly seen: Group[] = [];
  private readonly byNode = new Map<PeerId, Map<number, Holding & { groups: Set<number> }>>();
  private readonly loads = new Map<PeerId, number>();
  private readonly unquiet = new Set<number>();
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

  /** Shards of each node that holds any. */
  get load(): ReadonlyMap<PeerId, number> {
    return this.loads;
  }

  /** Groups that repair may change although all processes that hold something of them are alive. */
  get restless(): ReadonlySet<number> {
    return this.unquiet;
  }

  /** Groups in which something moves. */
  get moving(): ReadonlySet<number> {
    return this.moves;
  }

  /** Every process that holds something; node 0 stands for nobody. */
  *holdings(): Iterable<Holding> {
    for (const processes of this.byNode.values()) yield* processes.values();
  }

  /** Groups in which the node holds something, as whichever process. */
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
