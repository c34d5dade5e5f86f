/** Tells changes of the condition of the job as events: its redundancy, warnings, and lost shards. */
import type { Redundancy } from '../../protocol/messages.js';
import type { SavedCopy } from '../../protocol/status.js';
import type { Ledger } from './ledger.js';
import type { Condition } from './status.js';

export class Announcer {
  /** Redundancy that was told last. */
  private before: Redundancy = 'forming';
  /** Warnings that were told last; undefined: none, or they are over. */
  private warned: Pick<Condition, 'hosts' | 'shards'> = { hosts: undefined, shards: undefined };

  /** Lost shard -> the generation that was told to be lost. */
  private readonly told = new Map<string, number>();

  constructor(private readonly ledger: Ledger) {}

  announce({ state, hosts, shards, map }: Condition): void {
    const { warned } = this;
    this.warned = { hosts, shards };
    if (hosts !== undefined && hosts !== warned.hosts) this.event('hosts.warning', { message: hosts });
    if (shards !== undefined && shards !== warned.shards) this.event('shards.warning', { message: shards });
    if (state === this.before) return;
    this.before = state;
    this.event('redundancy', { state, epoch: map.epoch });
  }

  /** Tells a loss once for each ownership. `copy`: the shard in the newest checkpoint that has it. */
  lost(group: number, member: number, gen: number, copy: SavedCopy | undefined): void {
    const shard = `${group}/${member}`;
    if (this.told.get(shard) === gen) return;
    this.told.set(shard, gen);
    this.event('shard.lost', { group, member, ...copy });
  }

  private event(name: string, fields: Record<string, unknown>): void {
    this.ledger.afterwards({ kind: 'event', name, fields });
  }
}
