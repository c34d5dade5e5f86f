/**
 * Gaps in the numbers of clients. A client that is told of one sends again what it keeps from that number on.
 * A shard that was loaded from a checkpoint may have forgotten numbers that were answered long ago. It says
 * so, and the client answers with the least number that it keeps (rule 41).
 *
 * Each client is told only now and then: it answers by sending everything again.
 */
import type { DataEntry, PeerId } from '../../protocol/map.js';
import { Retry } from '../shared/retry.js';
import type { OwnerHost } from './host.js';

/** Whose shard it is. */
export interface GapsOwner {
  readonly group: { readonly id: number; readonly data: readonly DataEntry[] };
  readonly member: number;
}

export class Gaps {
  private readonly told = new Map<PeerId, Retry>();

  constructor(
    private readonly owner: GapsOwner,
    private readonly host: OwnerHost,
  ) {}

  /** The shard may have forgotten numbers. */
  get rewound(): boolean {
    const { group, member } = this.owner;
    return group.data[member]?.rewound === true;
  }

  tell(client: PeerId, expected: number): void {
    const { now, policy } = this.host;
    const retry = this.told.get(client) ?? new Retry({ waitMs: policy.retryMs / 4 });
    if (!retry.overdue(now)) return;
    retry.asked(now);
    this.told.set(client, retry);
    const { group, member: m } = this.owner;
    const mark = this.rewound && { rewound: true as const };
    this.host.tell(client, { t: 'gap', g: group.id, m, expected, ...mark });
  }

  /** Their sessions have ended. */
  forget(hasEnded: (client: PeerId) => boolean): void {
    for (const client of this.told.keys()) if (hasEnded(client)) this.told.delete(client);
  }
}
