/**
 * The newest events of the job, kept durably for people who look at it later. An event that the scheduler
 * emits to the log is numbered and kept here, too, if `EVENT_KINDS` names its kind.
 *
 * Nothing waits for an event. It goes to the store in the transaction of the next decision, or in one of its
 * own when there was none for `EVENT_DELAY_MS`. So the event of a decision is durable exactly when the
 * decision is, and one that stands alone may be lost with the process. Nobody is told of an event before it
 * is durable, so a number that was told is never that of another event.
 *
 * The ring has a key for each place. Of a kind that happens too often only some events are kept, so that it
 * does not push other kinds out of the ring. The next one that is kept has the number of those that were not.
 */
import {
  EVENT_KINDS,
  EVENTS_AT_ONCE,
  EVENTS_KEPT,
  type EventFields,
  type EventKind,
  fieldsOf,
  isEventKind,
  type JobEvent,
  subjectOf,
} from '../../protocol/events.js';
import { eventKey } from './entries.js';

/** Milliseconds for which an event waits for a decision to be written with. */
export const EVENT_DELAY_MS = 250;
/** The most events of one kind that are kept at once. */
const BURST = 100;
/** Milliseconds after which one more event of a kind is kept. */
const ONE_IN_MS = 5000;

const placeOf = (number: number): number => number % EVENTS_KEPT;

/** How many more events of one kind are kept. */
interface EventAllowance {
  /** Events that may be kept now: 0 to `BURST`. */
  left: number;
  /** Milliseconds up to which `left` has grown with time. */
  at: number;
  /** Events that were not kept since the last one that was. */
  skipped: number;
}

export class EventLog {
  /** Number of the newest event that is durable; 0: none. It never exceeds `newest`. */
  durable = 0;
  /** Events that no transaction has, oldest first; at most `EVENTS_KEPT`. */
  private pending: JobEvent[] = [];
  /** Milliseconds at which the oldest of `pending` came. */
  private pendingSince = 0;
  /** Number of the newest event, durable or not. Numbers grow by one. */
  private newest = 0;
  private now = 0;
  private wall = 0;
  private readonly allowances = new Map<EventKind, EventAllowance>();

  /** `ring`: the events of the durable state, by place: those that a transaction has, durable or not. */
  constructor(private readonly ring: Map<number, JobEvent>) {
    for (const { number } of ring.values()) this.newest = Math.max(this.newest, number);
    this.durable = this.newest;
  }

  /** `wall`: milliseconds since 1970. */
  tick(now: number, wall: number): void {
    this.now = now;
    this.wall = Math.round(wall);
  }

  /** An event goes to the log. It is kept here if its kind is. */
  heard(name: string, fields: Readonly<Record<string, unknown>>): void {
    if (isEventKind(name) && !('told' in EVENT_KINDS[name])) this.note(name, fields);
  }

  /** Keeps an event and returns its number. Undefined: there were too many of its kind, so it is not kept. */
  note(kind: EventKind, given: Readonly<Record<string, unknown>>): number | undefined {
    const allowance = this.allowances.get(kind) ?? { left: BURST, at: this.now, skipped: 0 };
    this.allowances.set(kind, allowance);
    const more = Math.floor((this.now - allowance.at) / ONE_IN_MS);
    allowance.left = Math.min(BURST, allowance.left + more);
    allowance.at += more * ONE_IN_MS;
    if (allowance.left === 0) {
      allowance.skipped++;
      return undefined;
    }
    allowance.left--;
    const fields = fieldsOf(kind, given);
    const subject = subjectOf(kind, fields);
    const { skipped } = allowance;
    allowance.skipped = 0;
    const told: EventFields = skipped > 0 ? { ...fields, skipped } : fields;
    if (this.pending.length === 0) this.pendingSince = this.now;
    this.pending.push({ number: ++this.newest, at: this.wall, kind, subject, fields: told });
    // More are pending only while the store is away. The oldest would not survive in the ring.
    if (this.pending.length > EVENTS_KEPT) this.pending.shift();
    return this.newest;
  }

  /** True: pending events have waited long enough for a decision. */
  get isDue(): boolean {
    return this.pending.length > 0 && this.now - this.pendingSince >= EVENT_DELAY_MS;
  }

  /** Adds the pending events to a transaction. Returns the number of the newest event in any transaction. */
  giveTo(changes: Map<string, unknown>): number {
    for (const event of this.pending) {
      const place = placeOf(event.number);
      this.ring.set(place, event);
      changes.set(eventKey(place), event);
    }
    this.pending = [];
    return this.newest;
  }

  /** The events up to this number are durable. */
  stored(number: number): void {
    this.durable = Math.max(this.durable, number);
  }

  /** The oldest events after this number that are kept and durable, at most `EVENTS_AT_ONCE`. */
  since(number: number): JobEvent[] {
    const events: JobEvent[] = [];
    const first = Math.max(number + 1, this.durable - EVENTS_KEPT + 1, 1);
    for (let next = first; next <= this.durable && events.length < EVENTS_AT_ONCE; next++) {
      const event = this.ring.get(placeOf(next));
      // The place may have a newer event that is not durable yet.
      if (event?.number === next) events.push(event);
    }
    return events;
  }
}
