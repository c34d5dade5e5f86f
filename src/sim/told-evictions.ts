/**
 * Answers to readers of evictions (rule 49), at the moment of sending. The engine says which keys leave in
 * which batch: an answer has exactly those of durable batches, in order. It may lack those that have become
 * durable since an earlier look, for a node may make a batch durable in the turn of an answer, after it. No
 * owner begins below a batch of which evictions were told.
 */
import type { PsNode } from '../core/node/node.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import { type EvictionLog, RememberingShard } from './engine.js';
import { Violation } from './violation.js';

/** The parts of the cluster that the checks need beside the messages. */
export interface EvictionsHost {
  readonly nodes: readonly { readonly node: Pick<PsNode, 'ownerAt'> | undefined }[];
  readonly now: number;
}

/** Checks answers when they are sent. */
export class ToldEvictions {
  /** Answer, see `nameOf` -> the log that the answer is of. */
  private readonly logs = new Map<string, EvictionLog>();
  /** "group/member" -> newest batch of which an eviction was told. */
  private readonly newest = new Map<string, { gen: number; seq: number }>();

  constructor(private readonly cluster: EvictionsHost) {}

  logOf(client: number, answer: MessageOf<'evicted'>): EvictionLog | undefined {
    return this.logs.get(nameOf(client, answer));
  }

  look(node: number, client: number, message: Message, parts: readonly Uint8Array[]): void {
    if (message.t !== 'evicted') return;
    const { g, m, table, gen, from, end } = message;
    const where = `evictions of table ${table} in shard ${g}/${m}, generation ${gen}`;
    const owner = this.cluster.nodes[node - 1]?.node?.ownerAt(g, m);
    const { native, stream } = owner ?? {};
    const log = native instanceof RememberingShard ? native.logs.get(table) : undefined;
    if (owner?.gen !== gen || !stream || !log) throw new Violation(`${where}: nobody keeps them`);
    this.logs.set(nameOf(client, message), log);
    const base = stream.before?.base ?? 0;
    const durable = log.entries.filter(({ batch }) => base + batch <= stream.committed).length;
    // The answer that began the log tells nothing.
    log.first ??= end;
    if (log.lookedAt < this.cluster.now) log.least = log.durable;
    Object.assign(log, { lookedAt: this.cluster.now, durable });
    const count = end - log.first;
    if (count < log.least || count > durable)
      throw new Violation(`${where}: ${count} are told, ${log.least} to ${durable} are durable`);
    const keys = new BigUint64Array(parts[0]!.slice().buffer);
    const told = log.entries.slice(from - log.first, from - log.first + keys.length);
    if (from < log.first || told.length < keys.length)
      throw new Violation(`${where}: from ${from} of ${end}`);
    for (const [i, { key, reason }] of told.entries())
      if (key !== keys[i] || reason !== parts[1]![i]) throw new Violation(`${where}: ${from + i} is another`);
    this.checkSurvived(`${g}/${m}`, gen, stream.before);
    const last = told.at(-1);
    if (last) this.newest.set(`${g}/${m}`, { gen, seq: base + last.batch });
  }

  private checkSurvived(shard: string, gen: number, before: { gen: number; base: number } | undefined): void {
    const newest = this.newest.get(shard);
    if (!newest || newest.gen === gen) return;
    if (before?.gen === newest.gen && before.base < newest.seq)
      throw new Violation(
        `shard ${shard}: evictions of batch ${newest.seq} were told, and ${before.base} is left`,
      );
  }
}

/** A question that came twice has two answers. */
function nameOf(client: number, { id, gen, from }: MessageOf<'evicted'>): string {
  return `${client}/${id}/${gen}/${from}`;
}
