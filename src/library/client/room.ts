/**
 * The bytes of pushes, or of answers, that may be under way at once: a request that does not fit waits for
 * the requests before it.
 */
import { onAbort } from '../../common/aborts.js';
import { aborted, type KintsugiError } from '../../common/errors.js';

/** `maxInFlightBytes` of a client that names no other. */
export const DEFAULT_IN_FLIGHT_BYTES = 256 << 20;

interface Waiter {
  bytes: number;
  /** With an error: there will be no room for it. */
  settle(error?: KintsugiError): void;
}

export class InFlightRoom {
  private taken = 0;
  private ended: KintsugiError | undefined;
  /** In the order of coming, a Set because any of them may be aborted. */
  private readonly waiting = new Set<Waiter>();

  constructor(private readonly limit: number) {}

  /**
   * Reserves `bytes`; more than the limit is reserved when nothing else is. First come, first served: a
   * request waits while others wait, also when it would fit. Otherwise small requests that come and go could
   * keep a large one waiting for ever. The test and the reservation are one synchronous step; otherwise
   * requests that begin at once would all find the same free bytes.
   * @throws ABORTED, or what `end` was told
   */
  async take(bytes: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.takeNow(bytes)) return;
    if (this.ended) throw this.ended;
    if (signal?.aborted) throw aborted();
    await new Promise<void>((resolve, reject) => {
      const waiter: Waiter = {
        bytes,
        settle: (error) => {
          this.waiting.delete(waiter);
          forget();
          if (error) reject(error);
          else resolve();
        },
      };
      this.waiting.add(waiter);
      const forget = onAbort(signal, () => {
        waiter.settle(aborted());
        // A push that did not fit behind it may fit now.
        this.handOut();
      });
    });
  }

  /** Reserves `bytes` if nobody has to wait for them. */
  takeNow(bytes: number): boolean {
    if (this.waiting.size > 0 || !this.fits(bytes)) return false;
    this.taken += bytes;
    return true;
  }

  free(bytes: number): void {
    this.taken -= bytes;
    this.handOut();
  }

  /** Tells every push that waits that there will be no room. */
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
