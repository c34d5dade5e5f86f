/** The disk of a simulated scheduler: entries by key, and the state that the next process reads there. */
import { type DurableState, newJob, type SchedulerEffect, stateOf } from '../core/scheduler/scheduler.js';
import { apply, type Entries } from '../storage/index.js';

export type Write = SchedulerEffect & { kind: 'persist' };

export class Disk {
  private readonly entries = new Map<string, unknown>();
  private known: DurableState | undefined;

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
