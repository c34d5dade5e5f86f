/** The disk of a simulated scheduler: entries by key, and the state that the next process reads there. */

import { HEAD_KEY } from '../core/scheduler/entries.js';
import { type DurableState, newJob, type SchedulerEffect, stateOf } from '../core/scheduler/scheduler.js';
import { apply, type Entries } from '../stores/decisions/index.js';
import { Violation } from './violation.js';

export type DiskWrite = SchedulerEffect & { kind: 'persist' };

export class Disk {
  /** The durable entries by key. */
  private readonly entries = new Map<string, unknown>();
  /** State of `entries`; undefined: they have changed since it was read. */
  private known: DurableState | undefined;
  /** Transactions that the disk works on, in order: after a crash each is there whole or not at all. */
  private queue: DiskWrite[] = [];

  constructor(private readonly empty: () => DurableState) {}

  /** True if anything was written, so that a scheduler which starts now resumes the job. */
  get used(): boolean {
    return this.entries.size > 0;
  }

  /** The state on the disk, for reading only. */
  get state(): DurableState {
    this.known ??= this.read();
    return this.known;
  }

  /** A state for a process that starts. */
  read(): DurableState {
    return stateOf(this.entries)?.state ?? this.empty();
  }

  /** True if no transaction is being written. */
  get idle(): boolean {
    return this.queue.length === 0;
  }

  begin(write: DiskWrite): void {
    const decides = ({ changes }: DiskWrite) => changes.has(HEAD_KEY);
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

  /** Drops the transactions that are being written, from the first one on that does not survive. */
  crash(survives: () => boolean): void {
    while (this.queue.length > 0 && survives()) this.finish();
    this.queue = [];
  }

  /**
   * Writes a transaction. Values are stored as JSON, so later changes of the process's objects do not count.
   */
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
