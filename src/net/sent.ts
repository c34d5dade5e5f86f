/** Payload bytes that a process has sent, by kind. */
import type { Message } from '../protocol/messages.js';
import { SENT_KINDS, type SentKind } from '../protocol/telemetry.js';

const KIND_OF: { readonly [K in Message['t']]?: SentKind } = {
  rows: 'answers',
  keysPage: 'answers',
  evicted: 'answers',
  delta: 'deltas',
  want: 'recovery',
  content: 'recovery',
  lacking: 'recovery',
  recover: 'recovery',
  equation: 'recovery',
  install: 'recovery',
  followDelta: 'replicas',
  followContent: 'replicas',
};

export class Sent {
  /** Bytes of parts by kind. They only grow. */
  readonly bytes: Record<SentKind, number> = { answers: 0, deltas: 0, recovery: 0, replicas: 0, other: 0 };

  add(kind: Message['t'], bytes: number): void {
    this.bytes[KIND_OF[kind] ?? 'other'] += bytes;
  }

  get total(): number {
    let total = 0;
    for (const kind of SENT_KINDS) total += this.bytes[kind];
    return total;
  }
}
