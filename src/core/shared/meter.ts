/**
 * Counters of a node's requests: plain numbers, added to where the work is done, read when somebody asks. No
 * decision depends on these numbers. Durations need a finer clock than that of ticks, so the runtime gives
 * the time before and after each step (`begin`, `end`).
 */
import { readSectionHeader } from '../../protocol/section-header.js';
import { DURATION_BOUNDS_SECONDS, type Histogram, type OpTelemetry } from '../../protocol/telemetry.js';

/** A histogram of durations. Bounds are in seconds, and arguments in milliseconds. */
export class Durations {
  private readonly counts = new Float64Array(DURATION_BOUNDS_SECONDS.length + 1);
  private sumSeconds = 0;

  add(ms: number, count = 1): void {
    const seconds = ms / 1000;
    let bucket = 0;
    while (bucket < DURATION_BOUNDS_SECONDS.length && seconds > DURATION_BOUNDS_SECONDS[bucket]!) bucket++;
    this.counts[bucket]! += count;
    this.sumSeconds += seconds * count;
  }

  read(): Histogram {
    return { counts: [...this.counts], sumSeconds: this.sumSeconds };
  }
}

/** Counters of one kind of request: pulls or pushes. All but `begun` only grow. */
class OpMeter {
  /** Messages that arrived. */
  requests = 0;
  /** Rows that their sections named, of all tables. */
  rows = 0;
  /** Table id -> rows of that table. */
  readonly rowsOf: number[] = [];
  /** Error code -> requests that failed with it. */
  private readonly failed = new Map<string, number>();
  private readonly duration = new Durations();
  /** Requests of this step that do not wait: their duration is that of the step. `end` sets it to 0. */
  private begun = 0;

  arrived(): void {
    this.requests++;
    this.begun++;
  }

  /**
   * Counts the rows that a section asks for, and returns their number. The section may be malformed: see
   * `readSectionHeader`.
   */
  read(section: DataView, start: number, end: number, tables: number): number {
    const before = this.rows;
    readSectionHeader(section, start, end, tables, this.addRows);
    return this.rows - before;
  }

  private readonly addRows = (table: number, rows: number): void => {
    this.rows += rows;
    this.rowsOf[table] = (this.rowsOf[table] ?? 0) + rows;
  };

  /** A request of this step waits. */
  waits(): void {
    this.begun--;
  }

  /** A request that waited has ended; `ms` is the time since it came. */
  waited(ms: number): void {
    this.duration.add(Math.max(0, ms));
  }

  fails(code: string): void {
    this.failed.set(code, (this.failed.get(code) ?? 0) + 1);
  }

  end(ms: number): void {
    if (this.begun > 0) this.duration.add(Math.max(0, ms), this.begun);
    this.begun = 0;
  }

  telemetry(): OpTelemetry {
    const { requests, rows } = this;
    return { requests, rows, failed: Object.fromEntries(this.failed), duration: this.duration.read() };
  }
}

export class Meter {
  readonly pull = new OpMeter();
  readonly push = new OpMeter();
  /** From the flush of a batch to its commit, counted once per push. */
  readonly commit = new Durations();
  /** Lost blocks of data shards that are here again: blocks that requests waited for, and others. */
  readonly recoveredBlocks = { demand: 0, background: 0 };
  /** Blocks that planned moves brought here. */
  movedBlocks = 0;
  /** When the current step began, in milliseconds of the runtime's clock. */
  at = 0;

  begin(ms: number): void {
    this.at = ms;
  }

  end(ms: number): void {
    this.served(ms - this.at);
  }

  /** The requests that have begun and do not wait have ended, `ms` after they came. */
  served(ms: number): void {
    this.pull.end(ms);
    this.push.end(ms);
  }
}
