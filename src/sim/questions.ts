/**
 * Limits how often an owner asks a sink for the same lost block. Rule 22: the owner asks one parity first,
 * all parities at most once, and again when the question is overdue. If an answer caused more questions than
 * it answers, a recovery would never end.
 */
import { words } from '../core/shared/bytes.js';
import type { PeerId } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import { Violation } from './violation.js';

/** Questions for one block within the time after which one is overdue. */
const MOST = 3;

export class Questions {
  /** Asker, sink, version and block -> times of its questions in the last retry time. */
  private readonly asked = new Map<string, number[]>();

  constructor(private readonly cluster: { readonly now: number; readonly retry: number }) {}

  /** A message leaves the process `from`. */
  look(from: number, to: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    if (message.t !== 'recover') return;
    const { now, retry } = this.cluster;
    const { g, m, gen, sid, v } = message;
    const blocks = words(parts[0]);
    for (let i = 0; i < blocks.length; i += 2) {
      const block = `${blocks[i]}/${blocks[i + 1]}`;
      const key = [from, to, g, m, gen, sid, v, block].join(' ');
      const times = (this.asked.get(key) ?? []).filter((time) => time > now - retry);
      this.asked.set(key, [...times, now]);
      if (times.length < MOST) continue;
      const often = `${times.length + 1} times in ${now - times[0]!} ms`;
      throw new Violation(`shard ${g}/${m} asked sink ${sid} for block ${block} ${often}`);
    }
  }
}
