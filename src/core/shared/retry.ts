/**
 * Retries decide when an unanswered question is asked again. The core has no timers: its machines look at
 * each tick whether a question is overdue.
 */

/** Patience of recovery: an answer to one of many questions says that the others are being worked on. */
export const PATIENCE = 4;

export interface RetryOptions {
  /** A question without any answer is overdue after this time. */
  waitMs: number;
  /** `lengthen` doubles the wait up to this; default: it stays as it is. */
  maxWaitMs?: number;
  /**
   * Factor of the wait while answers come: the missing answers are then probably on their way, and to ask
   * again would only delay them. Default: a peer that answered within the wait is not asked again.
   */
  patience?: number;
}

export class Retry {
  /** Milliseconds. `lengthen` doubles it; `answered` and `reset` set it to that of the options again. */
  waitMs: number;
  /** Time of the newest question, in milliseconds; minus infinity: none since the last `reset`. */
  private askedAt = Number.NEGATIVE_INFINITY;
  /** Time of the newest answer, in milliseconds. Answers may come without a question. */
  private answeredAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly options: RetryOptions) {
    this.waitMs = options.waitMs;
  }

  /** A question was asked since the last `reset`. */
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

  /** Milliseconds since the last answer; infinite: there was none since the last `reset`. */
  quietMs(now: number): number {
    return now - this.answeredAt;
  }

  /** The last answer is not older than the wait. */
  answering(now: number): boolean {
    return now - this.answeredAt <= this.waitMs;
  }

  /** Questions that were asked before this time are overdue. */
  overdueBefore(now: number): number {
    const { patience = Number.POSITIVE_INFINITY } = this.options;
    return now - (this.answering(now) ? patience : 1) * this.waitMs;
  }

  /**
   * True if it is time to ask: the question is overdue, or was never asked. An answer without a question puts
   * the first question off, too.
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
