/**
 * Answers about tables that wait until every owner of a shard has the map with a change: a setting that was
 * is waited for in the pool of its table, and a drop in all pools. Nodes say in every heartbeat which epoch
 * they have. A later owner has it, too: a generation is an epoch of the map, and a node serves a shard by a
 * map that is at least as new. So what all owners of a pool had once, they have.
 *
 * An owner that is not past FENCE and START does not count yet. The owner before it may live on without the
 * map, and sinks take its pushes until they have promised the new owner not to (rule 12).
 *
 * All of it is soft state: a client repeats its question to a scheduler that was started again. That one
 * takes the map with which it began for the last change of every setting.
 */
import type { PeerId, TableSpec } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Ledger } from './ledger.js';
import type { Liveness } from './liveness.js';
import type { Reports } from './reports.js';

/** Answers that wait, of all clients and of one of them. Of further ones the question is repeated. */
const MAX_WAITING = 4096;
const MAX_WAITING_OF_CLIENT = 128;

/** An answer that waits for longer is an event, once. */
const LONG_MS = 5000;

interface WaitingReply {
  message: Message & { id: number };
  /** By number of a pool: the epoch that all of its owners must have. */
  epochs: ReadonlyMap<number, number>;
  /** Milliseconds at the first tick since it waits; undefined: there was none yet. */
  since: number | undefined;
  /** The event about it is written. */
  isTold: boolean;
}

/** A shard whose owner does not have the newest changes for certain. */
interface LateShard {
  group: number;
  member: number;
  /** 0: it has no owner. */
  node: PeerId;
}

/** The epoch that all owners of a pool have. */
interface PoolMaps {
  epoch: number;
  /** The shard because of which it is no later epoch; undefined: all owners have the durable map. */
  late: LateShard | undefined;
}

export class OwnersMaps {
  /** By client, none without answers. */
  private readonly waiting = new Map<PeerId, WaitingReply[]>();
  /** Answers in `waiting`. */
  private count = 0;
  /** By table: the epoch with the newest change of its settings since this scheduler began. */
  private readonly changes = new Map<number, number>();
  /** Epoch of the map with which this scheduler began. */
  private readonly first: number;
  /** The newest epoch that somebody needs, or may need. */
  private newest: number;
  /** By number of a pool: the newest epoch that all of its owners had at one time. Only grows. */
  private readonly had: number[] = [];

  constructor(
    private readonly ledger: Ledger,
    private readonly liveness: Liveness,
    private readonly reports: Pick<Reports, 'lost' | 'serves'>,
  ) {
    this.first = this.newest = ledger.map.epoch;
  }

  /** The newest map changes settings of the table. */
  changed(table: TableSpec): void {
    this.newest = this.ledger.map.epoch;
    this.changes.set(table.id, this.newest);
  }

  /** The newest map drops the table. */
  dropped({ id }: TableSpec): void {
    this.changes.delete(id);
  }

  /**
   * Sends the message when all owners have the settings of these tables. One with the same number may wait
   * already.
   */
  answer(to: PeerId, message: WaitingReply['message'], tables: readonly TableSpec[]): void {
    const { ledger } = this;
    const epochs = new Map<number, number>();
    for (const { id, pool: name } of tables) {
      const pool = ledger.map.pools.findIndex((each) => each.name === name);
      epochs.set(pool, Math.max(epochs.get(pool) ?? 0, this.changes.get(id) ?? this.first));
    }
    this.answerWith(to, message, epochs);
  }

  /** Sends the message when all owners of all pools have the newest map. */
  answerByAll(to: PeerId, message: WaitingReply['message']): void {
    const { epoch, pools } = this.ledger.map;
    this.answerWith(to, message, new Map(pools.map((_, pool) => [pool, epoch])));
  }

  private answerWith(to: PeerId, message: WaitingReply['message'], epochs: WaitingReply['epochs']): void {
    const { waiting, ledger } = this;
    if (this.isReady(epochs)) {
      ledger.answer(to, message);
      return;
    }
    this.newest = Math.max(this.newest, ...epochs.values());
    const replies = waiting.get(to) ?? [];
    const isThere = replies.some((each) => each.message.id === message.id);
    if (isThere || replies.length >= MAX_WAITING_OF_CLIENT || this.count >= MAX_WAITING) return;
    waiting.set(to, [...replies, { message, epochs, since: undefined, isTold: false }]);
    this.count++;
  }

  tick(now: number): void {
    const { waiting, ledger } = this;
    const isBehind = ledger.map.pools.some((_, pool) => (this.had[pool] ?? -1) < this.newest);
    if (waiting.size === 0 && !isBehind) return;
    const late = ledger.map.pools.map((_, pool) => this.follow(pool));
    for (const [to, replies] of waiting) {
      // Nobody waits for the answer of a session that has ended.
      const isLeased = ledger.isLeased(to);
      const kept = isLeased ? replies.filter(({ epochs }) => !this.isReady(epochs)) : [];
      for (const { epochs, message } of replies)
        if (isLeased && this.isReady(epochs)) ledger.answer(to, message);
      for (const reply of kept) this.tellLong(to, reply, late, now);
      this.count += kept.length - replies.length;
      if (kept.length > 0) waiting.set(to, kept);
      else waiting.delete(to);
    }
  }

  private isReady(epochs: WaitingReply['epochs']): boolean {
    return [...epochs].every(([pool, epoch]) => (this.had[pool] ?? -1) >= epoch);
  }

  private tellLong(
    client: PeerId,
    reply: WaitingReply,
    late: readonly (LateShard | undefined)[],
    now: number,
  ): void {
    reply.since ??= now;
    if (reply.isTold || now - reply.since < LONG_MS) return;
    reply.isTold = true;
    const pool = [...reply.epochs].find(([each, epoch]) => (this.had[each] ?? -1) < epoch)![0];
    const { name } = this.ledger.map.pools[pool]!;
    const fields = { client, pool: name, ...late[pool], forMs: now - reply.since };
    this.ledger.now({ kind: 'event', name: 'settings.wait', fields });
  }

  /** Takes over what the owners of a pool have now. Returns the shard that is late. */
  private follow(pool: number): LateShard | undefined {
    const { epoch, late } = this.mapsOf(pool);
    this.had[pool] = Math.max(this.had[pool] ?? -1, epoch);
    return late;
  }

  /**
   * The epoch that all owners of a pool have. A shard without an owner may have an earlier one that nobody
   * has fenced. Shards that are beyond repair are loaded again by a later epoch, and until then nobody serves
   * them.
   */
  private mapsOf(pool: number): PoolMaps {
    const { ledger, liveness, reports } = this;
    const lost = new Set(reports.lost.map(({ g, m }) => `${g}/${m}`));
    const least: PoolMaps = { epoch: ledger.durableMap?.epoch ?? -1, late: undefined };
    for (const { id, data, pool: own } of ledger.map.groups) {
      if (own !== pool) continue;
      for (const [m, { node, inc, gen, init, restore }] of data.entries()) {
        const late = { group: id, member: m, node };
        if (node === 0) return { epoch: -1, late };
        const { epoch = -1 } = liveness.of(node, inc) ?? {};
        if (epoch < least.epoch) Object.assign(least, { epoch, late });
        if (lost.has(`${id}/${m}`)) continue;
        if (!init && !restore && !reports.serves(node, id, m, gen)) return { epoch: -1, late };
      }
    }
    return least;
  }
}
