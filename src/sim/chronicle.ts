/**
 * What is told of the events of a job holds for ever: an event that somebody was told of is on the disk, has
 * its number alone, and is the same after every crash. Those that nobody was told of may be lost with the
 * process.
 */
import type { Scheduler } from '../core/scheduler/scheduler.js';
import type { DurableState } from '../core/scheduler/state.js';
import { EVENTS_KEPT, type JobEvent } from '../protocol/events.js';
import { Violation } from './violation.js';

export class Chronicle {
  /** The newest that were told, by number. */
  private readonly told = new Map<number, string>();
  private newest = 0;
  /** State in the newest event about the redundancy of the job, and how many there were. */
  private redundancy: unknown;
  private redundancies = 0;

  /** After every step: everything that can be told is. */
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

  /** A scheduler that resumes the job has every event that was told, with its number. */
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

  /** A client was answered. */
  answered(number: number): void {
    if (number > this.newest) throw new Violation(`event ${number} was called kept before it was durable`);
  }

  /** Everything that happened is told: what is told last about the redundancy is what holds. */
  isUpTo(redundancy: string): boolean {
    // Those that come too often are told now and then.
    return this.redundancies > 80 || this.redundancy === redundancy;
  }
}
