/** Keeps the result of a costly computation for so long, for callers who ask often. */
export class Cached<T> {
  private known: { value: T; at: number } | undefined;

  constructor(
    private readonly compute: () => T,
    private readonly maxAgeMs: number,
    private readonly now: () => number,
  ) {}

  /** At most `maxAgeMs` old. */
  get value(): T {
    const now = this.now();
    if (!this.known || now - this.known.at >= this.maxAgeMs) this.known = { value: this.compute(), at: now };
    return this.known.value;
  }
}
