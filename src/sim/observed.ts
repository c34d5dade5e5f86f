/** Counts situations of a schedule by its messages, and checks tombstones. */
import { isTombstone } from '../core/shared/dedup.js';
import type { EndedSessions, Message } from '../protocol/messages.js';

/** The parts of the cluster that the counts and checks need. */
interface ObservationHost {
  count(name: string): void;
  readonly control: { checkTombstone(ended: EndedSessions): void };
}

export class ObservationChecks {
  /** Sink/member/generation -> position of the sink when it promised. */
  private readonly promised = new Map<string, number>();

  constructor(private readonly cluster: ObservationHost) {}

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
        // A sink that promised at a position above the base rolls back the deltas between.
        const key = `${message.sid}/${message.m}/${message.gen}`;
        if ((this.promised.get(key) ?? 0) > message.base) this.cluster.count('rollback');
        this.promised.delete(key);
      }
    }
  }
}
