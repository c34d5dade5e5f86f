/**
 * Whether every group can lose r nodes, kept up to date group by group: only groups are looked at for which a
 * report has come, or whose entry in the map has changed. The death of a process needs no look of its own:
 * repair gives away its places in the same decision, which changes the entries. `conditionOf` says the same
 * from scratch.
 */
import type { Group } from '../../protocol/map.js';
import type { Redundancy } from '../../protocol/messages.js';
import { changedGroups, type GroupIndex } from '../placement/group-index.js';
import { isHealthy } from '../placement/health.js';
import {
  type Condition,
  type ConditionInput,
  type Flaw,
  flawOf,
  formingReason,
  nodesOf,
  withMirrors,
  worse,
} from './status.js';

export class RedundancyIndex {
  private readonly seen: Group[] = [];
  /** Groups that cannot lose r nodes. */
  private readonly flaws = new Map<number, Flaw>();
  /** Groups of which a member lacks something, by the latest reports. */
  private readonly unhealthy = new Set<number>();

  /** `touched`: groups of which something was reported since the last call. */
  update(input: ConditionInput, index: GroupIndex, touched: Iterable<number>): void {
    const { map } = input.state;
    const { view } = input;
    const dirty = new Set(touched);
    for (const g of changedGroups(this.seen, map.groups)) dirty.add(g);
    // Whether they can improve depends on nodes that hold nothing of them; what is lost says how many rows.
    for (const g of index.restless) dirty.add(g);
    const lost = new Map<number, ConditionInput['lost'][number][]>();
    for (const shard of input.lost) {
      const others = lost.get(shard.g);
      if (others) others.push(shard);
      else lost.set(shard.g, [shard]);
      dirty.add(shard.g);
    }
    const mirrored = withMirrors(map.groups, view);
    for (const g of dirty) {
      const group = map.groups[g]!;
      const flaw = flawOf(group, { ...input, lost: lost.get(g) ?? [] }, mirrored);
      if (flaw) this.flaws.set(g, flaw);
      else this.flaws.delete(g);
      if (isHealthy(group, map.pools[group.pool]!, view)) this.unhealthy.delete(g);
      else this.unhealthy.add(g);
    }
  }

  /** After `update`. Groups that are beyond repair do not count. */
  isSettled(isLost: (g: number) => boolean): boolean {
    for (const g of this.unhealthy) if (!isLost(g)) return false;
    return true;
  }

  /** After `update`: what `conditionOf` says. */
  condition(input: ConditionInput): Condition {
    const { map } = input.state;
    const rest = { map, ...nodesOf(input) };
    if (map.groups.length === 0) return { ...rest, state: 'forming', reasons: [formingReason(input)] };
    const flaws = new Map(this.flaws);
    let state: Redundancy = 'full';
    for (const flaw of flaws.values()) state = worse(state, flaw.state);
    // Thousands of reasons are sorted only when somebody reads them.
    let reasons: string[] | undefined;
    return {
      ...rest,
      state,
      get reasons() {
        reasons ??= [...flaws].sort(([a], [b]) => a - b).map(([, { reason }]) => reason);
        return reasons;
      },
    };
  }
}
