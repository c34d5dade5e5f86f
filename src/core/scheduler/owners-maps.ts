/**
 * Answers that wait until every owner of a shard has a map: nodes say in every heartbeat which epoch they
 * have. A later owner has it, too: a generation is an epoch of the map, and a node serves a shard by a map
 * that is at least as new.
 *
 * An owner that is not past FENCE and START does not count yet. The owner before it may live on without the
 * map, and sinks take its pushes until they have promised the new owner not to (rule 12).
 *
 * All of it is soft state: a client repeats its question to a scheduler that was started again.
 */
import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Ledger } from './ledger.js';
import type { Liveness } from './liveness.js';
import type { Reports } from './reports.js';

/** Answers that wait, of all clients and of one of them. Of further ones the question is repeated. */
const MAX_WAITING = 4096;
const MAX_WAITING_OF_CLIENT = 128;

interface WaitingReply {
  epoch: number;
  message: Message & { id: number };
}

export class OwnersMaps {
  /** By client, none without answers. */
  private readonly waiting = new Map<PeerId, WaitingReply[]>();
  /** Answers in `waiting`. */
  private count = 0;

  constructor(
    private readonly ledger: Ledger,
    private readonly liveness: Liveness,
    private readonly reports: Pick<Reports, 'lost' | 'serves'>,
  ) {}

  /** Sends the message when all owners have the newest map. One with the same number may wait already. */
  answer(to: PeerId, message: WaitingReply['message']): void {
    const { waiting, ledger } = this;
    const replies = waiting.get(to) ?? [];
    const isThere = replies.some((each) => each.message.id === message.id);
    if (isThere || replies.length >= MAX_WAITING_OF_CLIENT || this.count >= MAX_WAITING) return;
    waiting.set(to, [...replies, { epoch: ledger.map.epoch, message }]);
    this.count++;
  }

  tick(): void {
    const { waiting, ledger } = this;
    if (waiting.size === 0) return;
    const least = this.leastEpoch();
    for (const [to, replies] of waiting) {
      // Nobody waits for the answer of a session that has ended.
      const kept = ledger.isLeased(to) ? replies.filter(({ epoch }) => epoch > least) : [];
      for (const { epoch, message } of replies)
        if (epoch <= least && ledger.isLeased(to)) ledger.answer(to, message);
      this.count += kept.length - replies.length;
      if (kept.length > 0) waiting.set(to, kept);
      else waiting.delete(to);
    }
  }

  /**
   * The epoch that all owners have. A shard without an owner may have an earlier one that nobody has fenced.
   * Shards that are beyond repair are loaded again by a later epoch, and until then nobody serves them.
   */
  private leastEpoch(): number {
    const { ledger, liveness, reports } = this;
    const lost = new Set(reports.lost.map(({ g, m }) => `${g}/${m}`));
    let least = ledger.durableMap?.epoch ?? -1;
    for (const { id, data } of ledger.map.groups)
      for (const [m, { node, inc, gen, init, restore }] of data.entries()) {
        if (node === 0) return -1;
        least = Math.min(least, liveness.of(node, inc)?.epoch ?? -1);
        if (lost.has(`${id}/${m}`)) continue;
        if (!init && !restore && !reports.serves(node, id, m, gen)) return -1;
      }
    return least;
  }
}
