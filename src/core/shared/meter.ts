/**
 * What a node counts of its requests: plain numbers, added up where the work is done, read by whoever asks.
 * No decision depends on these numbers. Durations need a finer clock than that of ticks, so the runtime gives
 * the time before and after each step (`begin`, `end`); without these calls the clock of ticks counts.
 */
import { DURATION_BOUNDS_SECONDS, type Histogram, type OpTelemetry } from '../../protocol/telemetry.js';

/** Durations in buckets. */
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

/** Of pulls, or of pushes. */
export class OpMeter {
  requests = 0;
  rows = 0;
  /** By the id of the table. */
  readonly rowsOf: number[] = [];
  private readonly failed = new Map<string, number>();
  private readonly duration = new Durations();
  /** Requests of this step that do not wait. */
  private begun = 0;

  arrived(): void {
    this.requests++;
    this.begun++;
  }

  /** What `section` asks for: its header names tables and counts (native.ts). It may be malformed. */
  read(section: DataView, start: number, end: number, tables: number): void {
    if (end - start < 8) return;
    const count = section.getUint32(start, true);
    if (count > (end - start - 8) / 16) return;
    for (let at = start + 8, left = count; left > 0; at += 16, left--) {
      const table = section.getUint32(at, true);
      const rows = section.getUint32(at + 4, true);
      if (table > tables || rows > (end - start) / 8) return;
      this.rows += rows;
      this.rowsOf[table] = (this.rowsOf[table] ?? 0) + rows;
    }
  }

  /** A request of this step waits. */
  waits(): void {
    this.begun--;
  }

  /** One that waited is over. */
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
  readonly commit = new Durations();
  /** Lost blocks of data shards that are here again: those that requests waited for, and others. */
  readonly recoveredBlocks = { demand: 0, background: 0 };
  /** Blocks that planned moves brought here. */
  movedBlocks = 0;
  /** Milliseconds of the step that is under way. */
  at = 0;

  begin(ms: number): void {
    this.at = ms;
  }

  end(ms: number): void {
    this.pull.end(ms - this.at);
    this.push.end(ms - this.at);
  }
}
