/** A value that is costly to compute, for those who ask often: computed anew at most once in so long. */
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
