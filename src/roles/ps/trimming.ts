/**
 * Gives freed memory back to the system. A process keeps what it has freed (native/binding/addon.cc), because
 * taking it anew costs more than the work for a request. A burst leaves so much of it behind that a PS has
 * far more than its classes hold.
 */

/** Time between two looks. */
const LOOK_MS = 200;
/** Memory that nobody holds is kept up to this share of `--memory`. */
const KEPT = 1 / 20;

export interface Trimmed {
  /** Resident bytes of the process. */
  rss(): number;
  /** Bytes that are accounted for, with those of the empty process. */
  held(): number;
  trim(): void;
}

export class Trimming {
  private nextAt = Number.NEGATIVE_INFINITY;
  /** Bytes that the last time left. They cannot be given back. */
  private left = 0;

  /** `memoryBytes`: as `--memory`; 0: there is no limit, and nothing is given back. */
  constructor(
    private readonly memoryBytes: number,
    private readonly process: Trimmed,
  ) {}

  tick(now: number): void {
    if (this.memoryBytes === 0 || now < this.nextAt) return;
    this.nextAt = now + LOOK_MS;
    const kept = this.memoryBytes * KEPT;
    const free = this.free();
    this.left = Math.min(this.left, free);
    if (free < this.left + kept) return;
    this.process.trim();
    this.left = this.free();
  }

  private free(): number {
    return Math.max(0, this.process.rss() - this.process.held());
  }
}
