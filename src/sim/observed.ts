/** What a schedule went through, read off its messages. */
import { isTombstone } from '../core/shared/dedup.js';
import type { EndedSessions, Message } from '../protocol/messages.js';

/** What is counted, and who looks at tombstones. */
interface Watched {
  count(name: string): void;
  readonly control: { checkTombstone(ended: EndedSessions): void };
}

export class Observed {
  /** sink/member/generation -> position in its promise */
  private readonly promised = new Map<string, number>();

  constructor(private readonly cluster: Watched) {}

  look(message: Message): void {
    switch (message.t) {
      case 'recover':
      case 'install':
      case 'lacking':
      case 'shardSaved':
        this.cluster.count(message.t);
        return;
      case 'equation':
        this.cluster.count(message.lacking.length > 1 ? 'jointEquations' : 'equations');
        return;
      case 'openAck':
        if (!message.none) this.promised.set(`${message.sid}/${message.m}/${message.gen}`, message.applied);
        return;
      case 'delta':
        for (const id of message.ids) {
          if (!isTombstone(id)) continue;
          this.cluster.count('tombstone');
          this.cluster.control.checkTombstone(id);
        }
        return;
      case 'start': {
        // A sink that promised at a later position than the agreed one takes back what is between.
        const key = `${message.sid}/${message.m}/${message.gen}`;
        if ((this.promised.get(key) ?? 0) > message.base) this.cluster.count('rollback');
        this.promised.delete(key);
      }
    }
  }
}
