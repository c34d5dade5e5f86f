/**
 * Answers to those who ask for events. A question that follows waits until there is an event that its asker
 * does not have, for `WAIT_MS` at most, so that neither side has to remember the other. A connection has so
 * many questions that wait, and so many answers in a tick. What is beyond is not answered: clients repeat it.
 */

import type { Link } from '../../net/transport/index.js';
import type { JobEvent } from '../../protocol/events.js';
import type { MessageOf } from '../../protocol/messages.js';

const WAIT_MS = 10_000;
/** Questions of one connection that wait. */
const MAX_WAITING = 16;
const AT_ONCE = 32;

export interface EventSource {
  /** Number of the newest event that is durable. */
  readonly durable: number;
  /** The oldest durable ones after this number, a bounded number of them. */
  since(number: number): JobEvent[];
}

type EventsQuestion = Omit<MessageOf<'events'>, 't'> & { until: number };

interface EventsAsker {
  readonly link: Link;
  answered: number;
  waiting: EventsQuestion[];
}

export class EventFeed {
  private readonly askers = new Map<number, EventsAsker>();
  /** Newest event when it was last looked. */
  private seen = 0;
  private readonly listeners = new Set<() => void>();

  constructor(
    private readonly source: EventSource,
    /** Milliseconds. */
    private readonly clock: () => number,
  ) {}

  ask(link: Link, { id, since, follow }: Pick<EventsQuestion, 'id' | 'since' | 'follow'>): void {
    const asker = this.askers.get(link.id) ?? { link, answered: 0, waiting: [] };
    this.askers.set(link.id, asker);
    if (asker.waiting.some((question) => question.id === id)) return;
    const question = { id, since, follow, until: this.clock() + WAIT_MS };
    if (!follow || this.source.durable > since) this.answer(asker, question);
    else if (asker.waiting.length < MAX_WAITING) asker.waiting.push(question);
  }

  /** Called when there are new events; returns how to end that. */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  since(number: number): JobEvent[] {
    return this.source.since(number);
  }

  /** All after this number. */
  *after(number: number): Generator<JobEvent> {
    for (let page = this.since(number); page.length > 0; page = this.since(page.at(-1)!.number)) yield* page;
  }

  /** Number of the newest event. */
  get newest(): number {
    return this.source.durable;
  }

  /** After every step: costs nothing while nothing new is durable. */
  look(): void {
    if (this.source.durable === this.seen) return;
    this.seen = this.source.durable;
    for (const asker of this.askers.values()) this.release(asker, ({ since }) => since < this.seen);
    for (const listener of [...this.listeners]) listener();
  }

  tick(): void {
    const now = this.clock();
    for (const asker of this.askers.values()) {
      asker.answered = 0;
      this.release(asker, ({ since, until }) => until <= now || since < this.seen);
      if (asker.waiting.length === 0) this.askers.delete(asker.link.id);
    }
  }

  closed(link: Link): void {
    this.askers.delete(link.id);
  }

  private release(asker: EventsAsker, isOver: (question: EventsQuestion) => boolean): void {
    if (asker.waiting.length === 0) return;
    const over = asker.waiting.filter(isOver);
    asker.waiting = asker.waiting.filter((question) => !over.includes(question));
    for (const question of over) this.answer(asker, question);
  }

  private answer(asker: EventsAsker, { id, since }: EventsQuestion): void {
    if (asker.answered >= AT_ONCE) return;
    asker.answered++;
    const { source } = this;
    asker.link.send({ t: 'eventsReply', id, events: source.since(since), newest: source.durable });
  }
}
