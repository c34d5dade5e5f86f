/**
 * When to ask again for something that was asked for and has not come. The core has no timers: its machines
 * look at each tick whether a question is overdue.
 */

/** For recovery: an answer to one of many questions says that the others are being worked on. */
export const PATIENCE = 4;

export interface RetryOptions {
  /** A question is overdue after this time. */
  waitMs: number;
  /** `lengthen` doubles the wait up to this; default: it stays as it is. */
  maxWaitMs?: number;
  /**
   * While answers come, what is missing is probably on its way, and to ask again would only delay it: the
   * wait is then so many times longer. Default: whoever answered within the wait is not asked again.
   */
  patience?: number;
}

export class Retry {
  /** Milliseconds; doubled by `lengthen`, and as in the options again after an answer. */
  waitMs: number;
  private askedAt = Number.NEGATIVE_INFINITY;
  private answeredAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly options: RetryOptions) {
    this.waitMs = options.waitMs;
  }

  /** Something was asked since the last `reset`. */
  get begun(): boolean {
    return this.askedAt !== Number.NEGATIVE_INFINITY;
  }

  asked(now: number): void {
    this.askedAt = now;
  }

  /** Notes an answer, or another sign that the question need not be repeated yet. */
  answered(now: number): void {
    this.answeredAt = now;
    this.waitMs = this.options.waitMs;
  }

  /** The last answer is not older than the wait. */
  answering(now: number): boolean {
    return now - this.answeredAt <= this.waitMs;
  }

  /** What was asked before this time is overdue. */
  overdueBefore(now: number): number {
    const { patience = Number.POSITIVE_INFINITY } = this.options;
    return now - (this.answering(now) ? patience : 1) * this.waitMs;
  }

  /**
   * True if it is time to ask. That is also so when nothing was asked yet, unless there were answers without
   * a question.
   */
  overdue(now: number): boolean {
    return this.askedAt < this.overdueBefore(now);
  }

  /** The next wait is twice as long. */
  lengthen(): void {
    this.waitMs = Math.min(this.waitMs * 2, this.options.maxWaitMs ?? this.waitMs);
  }

  /** The question is overdue after `waitMs` from now, whatever the usual wait. */
  askAgainIn(waitMs: number, now: number): void {
    this.askedAt = now + waitMs - this.waitMs;
  }

  /** The question is overdue at once. */
  reset(): void {
    this.askedAt = this.answeredAt = Number.NEGATIVE_INFINITY;
    this.waitMs = this.options.waitMs;
  }
}
