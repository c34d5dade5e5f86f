/**
 * Events that clients tell, an autoscaler's decisions for example. Each is answered when it is durable. A
 * message that is repeated before its answer, or because the answer was lost, adds no second event.
 */
import { limitText } from '../../protocol/limits.js';
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Ledger } from './ledger.js';

/** The most questions that wait for the store, and the most answers that are remembered. */
const MOST = 64;

interface ToldEvent {
  to: PeerId;
  id: number;
  number: number;
}

export class ToldEvents {
  /** Events that are not durable yet, oldest first. */
  private waiting: ToldEvent[] = [];
  /** The newest answers, oldest first. */
  private readonly answered: ToldEvent[] = [];

  constructor(private readonly ledger: Ledger) {}

  note(from: PeerId, { id, kind, fields }: MessageOf<'tellEvent'>): void {
    const isThis = (told: ToldEvent) => told.to === from && told.id === id;
    if (this.waiting.some(isThis)) return;
    const before = this.answered.find(isThis);
    if (before) return this.ledger.tell(from, { t: 'eventTold', id, number: before.number });
    const number = this.waiting.length < MOST ? this.ledger.events.note(kind, fields) : undefined;
    if (number !== undefined) this.waiting.push({ to: from, id, number });
    else {
      const message = limitText(`too many events of kind ${kind}`, 'maxToldEvents');
      this.ledger.tell(from, { t: 'eventTold', id, number: 0, code: 'LIMIT', message });
    }
  }

  /** A transaction became durable: answers the events in it. */
  answer(): void {
    const { durable } = this.ledger.events;
    for (const told of this.waiting) {
      if (told.number > durable) continue;
      this.ledger.tell(told.to, { t: 'eventTold', id: told.id, number: told.number });
      this.answered.push(told);
    }
    this.waiting = this.waiting.filter(({ number }) => number > durable);
    this.answered.splice(0, this.answered.length - MOST);
  }
}
