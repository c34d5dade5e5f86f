/**
 * Scans: clients read the keys of a shard page by page, beside all other traffic. A client's own row is
 * durable from its first acknowledged push on, so a scan that begins later must give its key, once. Clients
 * that scan also read evictions.
 */
import { locate, shardCount } from '../protocol/map.js';
import type { MessageOf } from '../protocol/messages.js';
import type { ClientActor } from './actors.js';
import type { SimulatedCluster } from './cluster.js';
import { EvictionReaders } from './evictions.js';
import { type Oracle, shardOf } from './oracle.js';
import type { SimulatedSections, Store } from './sections.js';
import type { AnswerEffect } from './sides.js';
import { Violation } from './violation.js';

interface Scan {
  process: number;
  ticket: number;
  message: MessageOf<'keys'>;
  /** The key that the scan must give; undefined: no key is known to be durable. */
  wanted: bigint | undefined;
  found: boolean;
}

export class Scans {
  /** Client -> its only scan. */
  private readonly running = new Map<ClientActor, Scan>();
  private readonly evictions: EvictionReaders;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly sections: SimulatedSections,
    private readonly oracle: Oracle,
    private readonly newTicket: () => number,
  ) {
    this.evictions = new EvictionReaders(cluster, newTicket);
  }

  readEvictions(index: number, actor: ClientActor, stores: readonly Store[]): void {
    this.evictions.ask(index, actor, stores);
  }

  /** Begins a scan of a shard for client number `owner`, unless one is running. */
  begin(index: number, actor: ClientActor, owner: number, stores: readonly Store[]): void {
    if (this.running.get(actor)?.process === actor.process) return;
    const { random } = this.cluster;
    const store = random.pick(stores);
    const shard = random.below(shardCount(store.pool));
    const { group: g, member: m } = locate(store.pool, shard);
    const table = random.pick(store.tables.filter(({ learner }) => !learner));
    const key = this.sections.ownKey(store, shard, owner);
    const order = random.chance(0.5) ? 'slot' : 'key';
    const page = { order, from: 0, max: 1 + random.below(4) } as const;
    const scan: Scan = {
      process: actor.process,
      ticket: 0,
      message: { t: 'keys', epoch: 0, id: 0, g, m, table: table.id, ...page },
      wanted: this.oracle.acknowledged(owner, shardOf(g, m)) > 0 ? key : undefined,
      found: false,
    };
    this.running.set(actor, scan);
    this.ask(index, actor, scan);
  }

  private ask(index: number, actor: ClientActor, scan: Scan): void {
    const { g, m } = scan.message;
    const ticket = this.newTicket();
    scan.ticket = ticket;
    const query = { to: { g, m }, message: { ...scan.message } };
    this.cluster.runClient(index, actor.core.step({ kind: 'query', ticket, query }));
  }

  /** Forgets the scans of a shard that is loaded again: its slots are others now. */
  forget(g: number, m: number): void {
    for (const [actor, { message }] of this.running)
      if (message.g === g && message.m === m) this.running.delete(actor);
  }

  /** True if this was the answer to a scan. */
  answered(index: number, actor: ClientActor, effect: AnswerEffect & { kind: 'answer' }): boolean {
    if (this.evictions.answered(index, actor, effect)) return true;
    const scan = this.running.get(actor);
    if (scan?.ticket !== effect.ticket || scan.process !== actor.process) return false;
    const { message, parts } = effect;
    if (message.t !== 'keysPage') throw new Violation('a question for keys has another answer');
    const { g, m, order, from, max } = scan.message;
    const where = `a scan of shard ${g}/${m} by ${order} from ${from}`;
    const keys = [...new BigUint64Array(parts[0]!.slice().buffer)];
    if (keys.length > max) throw new Violation(`${where}: ${keys.length} keys in a page of ${max}`);
    if (order === 'key') {
      for (const [i, key] of keys.entries())
        if (key < (i === 0 ? BigInt(from) : keys[i - 1]!)) throw new Violation(`${where}: keys out of order`);
    }
    for (const key of keys) {
      if (key !== scan.wanted) continue;
      if (scan.found) throw new Violation(`${where}: a durable key came twice`);
      scan.found = true;
    }
    if (message.next === -1) this.end(actor, scan, where);
    else {
      scan.message.from = message.next;
      this.ask(index, actor, scan);
    }
    return true;
  }

  private end(actor: ClientActor, scan: Scan, where: string): void {
    this.running.delete(actor);
    if (scan.wanted !== undefined && !scan.found)
      throw new Violation(`${where}: the durable key ${scan.wanted} is missing`);
    this.cluster.count('scan');
  }
}
