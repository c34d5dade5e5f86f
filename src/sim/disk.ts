/** The disk of a simulated scheduler: entries by key, and the state that the next process reads there. */

import { HEAD_KEY } from '../core/scheduler/entries.js';
import { type DurableState, newJob, type SchedulerEffect, stateOf } from '../core/scheduler/scheduler.js';
import { apply, type Entries } from '../storage/index.js';
import { Violation } from './violation.js';

export type Write = SchedulerEffect & { kind: 'persist' };

export class Disk {
  private readonly entries = new Map<string, unknown>();
  private known: DurableState | undefined;
  /** Transactions that the disk works on, in order: a crash has each whole or not at all. */
  private queue: Write[] = [];

  constructor(private readonly empty: () => DurableState) {}

  /** Something was written: a scheduler that starts now resumes it. */
  get used(): boolean {
    return this.entries.size > 0;
  }

  /** To look at, not to change. */
  get state(): DurableState {
    this.known ??= this.read();
    return this.known;
  }

  /** A state for a process that starts. */
  read(): DurableState {
    return stateOf(this.entries)?.state ?? this.empty();
  }

  /** Nothing is being written. */
  get idle(): boolean {
    return this.queue.length === 0;
  }

  begin(write: Write): void {
    const decides = ({ changes }: Write) => changes.has(HEAD_KEY);
    if (this.queue.some((other) => decides(other) === decides(write)))
      throw new Violation('a transaction began before the last one was durable');
    this.queue.push(write);
  }

  /** Version of the transaction that is durable now; undefined: there was none. */
  finish(): number | undefined {
    const next = this.queue.shift();
    if (next) this.write(next.changes);
    return next?.version;
  }

  /** What is being written is lost; `survives` says of each whether it got there, until one did not. */
  crash(survives: () => boolean): void {
    while (this.queue.length > 0 && survives()) this.finish();
    this.queue = [];
  }

  /** One transaction. What is stored has the form of JSON, whatever the process does with its objects. */
  write(changes: Entries): void {
    const stored = [...changes].map(([key, value]): [string, unknown] => [key, copied(value)]);
    apply(this.entries, new Map(stored));
    this.known = undefined;
  }
}

function copied(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

/** The disk of a job that nobody has started yet. */
export function newDisk(...job: Parameters<typeof newJob>): Disk {
  return new Disk(() => newJob(...job));
}
