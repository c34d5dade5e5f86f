/**
 * The chronicle checks that told events of a job hold for ever: an event that somebody was told of is on the
 * disk, has its number alone, and is the same after every crash. An event that nobody was told of may be lost
 * with the process.
 */
import type { Scheduler } from '../core/scheduler/scheduler.js';
import type { DurableState } from '../core/scheduler/state.js';
import { EVENTS_KEPT, type JobEvent } from '../protocol/events.js';
import { Violation } from './violation.js';

export class Chronicle {
  /** Number -> event, of the newest `EVENTS_KEPT` that were told. */
  private readonly told = new Map<number, string>();
  /** Number of the newest event that was told. */
  private newest = 0;
  /** State in the newest event about the redundancy of the job. */
  private redundancy: unknown;
  /** Number of events about redundancy that were told. */
  private redundancies = 0;

  /** Called after every step: all durable events are told. */
  look({ events }: Scheduler, disk: DurableState): void {
    if (events.durable === this.newest) return;
    if (events.durable < this.newest)
      throw new Violation(`event ${this.newest} was told, and now ${events.durable} is the newest`);
    const onDisk = new Map([...disk.events.values()].map((event) => [event.number, JSON.stringify(event)]));
    for (let page = events.since(this.newest); page.length > 0; page = events.since(this.newest))
      for (const event of page) this.tell(event, onDisk);
  }

  private tell(event: JobEvent, onDisk: ReadonlyMap<number, string>): void {
    const { number, kind, fields } = event;
    const text = JSON.stringify(event);
    if (number !== this.newest + 1) throw new Violation(`after event ${this.newest} comes event ${number}`);
    if (onDisk.get(number) !== text) throw new Violation(`event ${number} is told and not on the disk`);
    this.newest = number;
    this.told.set(number, text);
    this.told.delete(number - EVENTS_KEPT);
    if (kind !== 'redundancy') return;
    this.redundancy = fields.state;
    this.redundancies++;
  }

  /** Checks that a scheduler which resumes the job has every event that was told, with its number. */
  resumed({ events }: Scheduler): void {
    const kept = new Map<number, string>();
    for (let seen = 0, page = events.since(0); page.length > 0; page = events.since(seen))
      for (const event of page) {
        kept.set(event.number, JSON.stringify(event));
        seen = event.number;
      }
    for (const [number, text] of this.told)
      if (events.durable - number < EVENTS_KEPT && kept.get(number) !== text)
        throw new Violation(`event ${number} was told as ${text}, and is ${kept.get(number)} now`);
  }

  /** A client was told that its event is kept under this number. */
  answered(number: number): void {
    if (number > this.newest) throw new Violation(`event ${number} was called kept before it was durable`);
  }

  /** True if the newest told event about redundancy has the present state. */
  isUpTo(redundancy: string): boolean {
    // Redundancy events are throttled after 80, so the last may be old.
    return this.redundancies > 80 || this.redundancy === redundancy;
  }
}
