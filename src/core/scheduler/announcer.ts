/** Tells of changes of the condition: what cannot be lost any more, and what is lost. */
import type { Redundancy } from '../../protocol/messages.js';
import type { SavedCopy } from '../../protocol/status.js';
import type { Ledger } from './ledger.js';
import type { Condition } from './status.js';

export class Announcer {
  private before: Redundancy = 'forming';
  private warned: Pick<Condition, 'hosts' | 'shards'> = { hosts: undefined, shards: undefined };

  /** Lost shards that were told of, with their generations. */
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

  /** Once for each ownership. `copy`: what the newest checkpoint would bring back. */
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
