/**
 * Limits how often an owner asks a sink for the same lost block. Rule 22: the owner asks one parity first,
 * all parities at most once, and again when the question is overdue. It asks anew when the group changes and
 * when it takes a map in which a table is gone (rule 47): sinks have dropped their accumulators then. If an
 * answer caused more questions than it answers, a recovery would never end.
 */
import type { PsNode } from '../core/node/node.js';
import { words } from '../core/shared/bytes.js';
import { EMPTY_MAP, lastTableOf, type PeerId } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import { type EvictionsHost, ToldEvictions } from './told-evictions.js';
import { Violation } from './violation.js';

/** Questions for one block within the time after which one is overdue. */
const MOST = 3;

/** The parts of the cluster that the check needs beside the messages. */
interface QuestionsHost extends EvictionsHost {
  readonly nodes: readonly { readonly node: Pick<PsNode, 'map' | 'ownerAt'> | undefined }[];
  readonly now: number;
  readonly retry: number;
}

export class Questions {
  /** Asker, sink, version, number of dropped tables and block -> its questions in the last retry time. */
  private readonly asked = new Map<string, number[]>();

  readonly evictions: ToldEvictions;

  constructor(private readonly cluster: QuestionsHost) {
    this.evictions = new ToldEvictions(cluster);
  }

  /** A message leaves the process `from`. */
  look(from: number, to: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    this.evictions.look(from, to, message, parts);
    if (message.t !== 'recover') return;
    const { now, retry, nodes } = this.cluster;
    const { g, m, gen, sid, v } = message;
    const map = nodes[from - 1]?.node?.map ?? EMPTY_MAP;
    const dropped = lastTableOf(map) - map.tables.length;
    const blocks = words(parts[0]);
    for (let i = 0; i < blocks.length; i += 2) {
      const block = `${blocks[i]}/${blocks[i + 1]}`;
      const key = [from, to, g, m, gen, sid, v, dropped, block].join(' ');
      const times = (this.asked.get(key) ?? []).filter((time) => time > now - retry);
      this.asked.set(key, [...times, now]);
      if (times.length < MOST) continue;
      const often = `${times.length + 1} times in ${now - times[0]!} ms`;
      throw new Violation(`shard ${g}/${m} asked sink ${sid} for block ${block} ${often}`);
    }
  }
}
