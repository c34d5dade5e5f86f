/**
 * Gaps in the numbers of clients. A client that is told of a gap resends the pushes that it keeps from that
 * number on. Rule 41: a shard that was loaded from a checkpoint may have forgotten numbers that were answered
 * long ago. Its owner says so (`rewound`), and the client answers with the least number that it keeps.
 *
 * Each client is told at a limited rate (rule 7), because it answers by resending everything.
 */
import type { DataEntry, PeerId } from '../../protocol/map.js';
import { Retry } from '../shared/retry.js';
import type { OwnerHost } from './host.js';

/** The owner whose clients are told of gaps. */
export interface GapsOwner {
  readonly group: { readonly id: number; readonly data: readonly DataEntry[] };
  readonly member: number;
}

export class Gaps {
  /** Client -> when it was last told of a gap. A client leaves when its session has ended. */
  private readonly told = new Map<PeerId, Retry>();

  constructor(
    private readonly owner: GapsOwner,
    private readonly host: OwnerHost,
  ) {}

  /** The map marks the shard: it may have forgotten numbers. */
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

  /** Forgets the clients whose sessions have ended. */
  forget(hasEnded: (client: PeerId) => boolean): void {
    for (const client of this.told.keys()) if (hasEnded(client)) this.told.delete(client);
  }
}
