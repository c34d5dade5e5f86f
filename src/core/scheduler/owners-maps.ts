/**
 * Answers that wait until every owner of a shard has a map: nodes say in every heartbeat which epoch they
 * have. A later owner has it, too: a generation is an epoch of the map, and a node serves a shard by a map
 * that is at least as new.
 *
 * All of it is soft state: a client repeats its question to a scheduler that was started again.
 */
import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Ledger } from './ledger.js';
import type { Liveness } from './liveness.js';
import type { Reports } from './reports.js';

/** Answers that wait; of further ones the question is repeated. */
const MAX_WAITING = 4096;

interface WaitingReply {
  to: PeerId;
  epoch: number;
  message: Message & { id: number };
}

export class OwnersMaps {
  private waiting: WaitingReply[] = [];

  constructor(
    private readonly ledger: Ledger,
    private readonly liveness: Liveness,
    private readonly reports: Pick<Reports, 'lost'>,
  ) {}

  /** Sends the message when all owners have the newest map. One with the same number may wait already. */
  answer(to: PeerId, message: WaitingReply['message']): void {
    const { waiting, ledger } = this;
    const isThere = waiting.some((each) => each.to === to && each.message.id === message.id);
    if (!isThere && waiting.length < MAX_WAITING) waiting.push({ to, epoch: ledger.map.epoch, message });
  }

  tick(): void {
    if (this.waiting.length === 0) return;
    const least = this.leastEpoch();
    const ready = this.waiting.filter(({ epoch }) => epoch <= least);
    if (ready.length === 0) return;
    this.waiting = this.waiting.filter(({ epoch }) => epoch > least);
    for (const { to, message } of ready) this.ledger.answer(to, message);
  }

  /**
   * The epoch that all owners have. Shards that are beyond repair serve nothing, and a map of a later epoch
   * has them loaded again.
   */
  private leastEpoch(): number {
    const { ledger, liveness, reports } = this;
    const lost = new Set(reports.lost.map(({ g, m }) => `${g}/${m}`));
    let least = ledger.durableMap?.epoch ?? -1;
    for (const { id, data } of ledger.map.groups)
      for (const [m, { node, inc }] of data.entries()) {
        if (node === 0 || lost.has(`${id}/${m}`)) continue;
        least = Math.min(least, liveness.of(node, inc)?.epoch ?? -1);
      }
    return least;
  }
}
