/**
 * Decides who holds what: forms the groups of a new job, and repairs them whenever the facts have changed.
 * Every decision about groups goes through `setGroups`, so that recoveries hear of each.
 */
import { shardKey } from '../../protocol/items.js';
import type { Group } from '../../protocol/map.js';
import { formGroups } from '../placement/form.js';
import { repair } from '../placement/repair.js';
import type { ClusterFacts } from './facts.js';
import type { Ledger } from './ledger.js';
import type { Recoveries } from './recoveries.js';

/** A version that the facts never have. */
const NEVER = -1;

export class Placing {
  /** Version of the facts at which repair had nothing to do; `NEVER`: it had something to do. */
  private settledAt = NEVER;

  constructor(
    private readonly ledger: Ledger,
    private readonly facts: ClusterFacts,
    private readonly recoveries: Recoveries,
  ) {}

  /** The facts are the same as when repair had nothing to do. */
  get isSettled(): boolean {
    return this.settledAt === this.facts.version;
  }

  setGroups(groups: Group[], reason: string, fields: Record<string, unknown> = {}): void {
    const before = this.ledger.map.groups;
    this.ledger.setGroups(groups, reason, fields);
    this.recoveries.decided(before, groups);
  }

  /** The group in a new version, which is the epoch of the new map. */
  setGroup(group: Group, reason: string, fields: Record<string, unknown> = {}): void {
    const { groups, epoch } = this.ledger.map;
    const changed = { ...group, version: epoch + 1 };
    this.setGroups(
      groups.map((other) => (other.id === group.id ? changed : other)),
      reason,
      fields,
    );
  }

  /** Forms the groups once enough nodes have joined. */
  form(): void {
    const { map, nodesWanted, restore } = this.ledger.state;
    if (map.groups.length > 0) return;
    const ready = this.facts.present.filter((node) => !node.standby);
    if (ready.length < nodesWanted) return;
    const first = ready.slice(0, nodesWanted);
    const toLoad = (g: number, m: number) => restore?.shards.get(shardKey(g, m));
    this.setGroups(formGroups(map.pools, first, map.epoch + 1, this.ledger.nextSid, toLoad), 'formed');
  }

  /** Repairs what can be repaired now. A loss makes a new map in any case: its event names the lost node. */
  reconfigure(reason: string, fields: Record<string, unknown> = {}): void {
    const { map } = this.ledger;
    if (map.groups.length === 0) return;
    const { facts } = this;
    const { nextSid } = this.ledger;
    const groups = repair(map.groups, map.pools, facts.view(), map.epoch + 1, nextSid, facts.index);
    this.settledAt = groups ? NEVER : facts.version;
    if (groups) this.setGroups(groups, reason, fields);
    else if (reason === 'lost') this.ledger.setMap({}, reason, fields);
  }
}
