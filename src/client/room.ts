/**
 * The bytes of pushes that may be under way at once: a push that does not fit waits for the pushes before it.
 */
import { aborted, type KintsugiError } from '../errors.js';

interface Waiter {
  bytes: number;
  /** With an error: there will be no room for it. */
  settle(error?: KintsugiError): void;
}

export class Room {
  private taken = 0;
  private ended: KintsugiError | undefined;
  /** In the order of coming, a Set because any of them may be aborted. */
  private readonly waiting = new Set<Waiter>();

  constructor(private readonly limit: number) {}

  /**
   * Reserves `bytes`; more than the limit is reserved when nothing else is. First come, first served: a push
   * waits while others wait, also when it would fit. Otherwise small pushes that come and go could keep a
   * large one waiting for ever. The test and the reservation are one synchronous step; otherwise pushes that
   * begin at once would all find the same free bytes.
   * @throws ABORTED, or what `end` was told
   */
  async take(bytes: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.waiting.size === 0 && this.fits(bytes)) {
      this.taken += bytes;
      return;
    }
    if (this.ended) throw this.ended;
    if (signal?.aborted) throw aborted();
    await new Promise<void>((resolve, reject) => {
      const onAbort = () => {
        waiter.settle(aborted());
        // What did not fit behind it may now.
        this.handOut();
      };
      const waiter: Waiter = {
        bytes,
        settle: (error) => {
          this.waiting.delete(waiter);
          signal?.removeEventListener('abort', onAbort);
          if (error) reject(error);
          else resolve();
        },
      };
      this.waiting.add(waiter);
      signal?.addEventListener('abort', onAbort);
    });
  }

  free(bytes: number): void {
    this.taken -= bytes;
    this.handOut();
  }

  /** Whoever waits is told that there will be no room. */
  end(error: KintsugiError): void {
    this.ended = error;
    for (const waiter of [...this.waiting]) waiter.settle(error);
  }

  private fits(bytes: number): boolean {
    return this.taken === 0 || this.taken + bytes <= this.limit;
  }

  /** Room is reserved here for those whose turn it is; otherwise a push that begins now would take it. */
  private handOut(): void {
    for (const waiter of this.waiting) {
      if (!this.fits(waiter.bytes)) return;
      this.taken += waiter.bytes;
      waiter.settle();
    }
  }
}
