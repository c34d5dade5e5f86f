/**
 * Records of the roles of a run. Workers report their progress twenty times a second: a run of hours would
 * keep gigabytes of it. So of a long run fewer reports are kept, further apart. Sums and times of the run's
 * report do not change by that, because the last report of every process is always kept; rates are means over
 * longer times.
 */
import type { RoleEvent } from './events.js';

/** Reports of progress of all workers together, about 50 MB: more than runs of some minutes make. */
const MAX_PROGRESS = 100_000;
/** The first distance that drops some: workers tell their progress about every 50 ms. */
const LEAST_APART_MS = 100;
/** Reports are thinned no further: what is left then is a few reports each of very many processes. */
const MOST_APART_MS = 3_600_000;

/** The newest report of a process. */
interface Newest {
  /** Index in `all`. */
  at: number;
  /** Clock of the report that was kept before it. */
  before: number;
}

export class KeptEvents {
  /** Records in the order of arrival. */
  readonly all: RoleEvent[] = [];
  private readonly newest = new Map<string, Newest>();
  private progress = 0;
  private apartMs = 0;
  private limit: number;

  constructor(private readonly maxProgress = MAX_PROGRESS) {
    this.limit = maxProgress;
  }

  add(event: RoleEvent): void {
    this.put(event);
    if (this.progress <= this.limit) return;
    while (this.progress > this.maxProgress / 2 && this.apartMs < MOST_APART_MS) {
      this.apartMs = Math.max(LEAST_APART_MS, 2 * this.apartMs);
      this.thin();
    }
    // Thinning that drops little is not repeated for each report.
    this.limit = Math.max(this.maxProgress, 2 * this.progress);
  }

  private put(event: RoleEvent): void {
    const { source } = event;
    // Another process of that name counts from 0, and the last report of the one before is needed.
    if (event.event === 'worker.training') this.newest.delete(source);
    if (event.event !== 'worker.progress') {
      this.all.push(event);
      return;
    }
    const newest = this.newest.get(source);
    const told = newest ? this.all[newest.at]!.mono : Number.NEGATIVE_INFINITY;
    if (newest && told - newest.before < this.apartMs) {
      // The report before was kept only because it was the newest.
      this.all[newest.at] = event;
      return;
    }
    this.newest.set(source, { at: this.all.length, before: told });
    this.all.push(event);
    this.progress++;
  }

  private thin(): void {
    const events = this.all.splice(0);
    this.newest.clear();
    this.progress = 0;
    for (const event of events) this.put(event);
  }
}
