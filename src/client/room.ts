/**
 * The bytes of pushes that may be under way at once: a push that does not fit waits for the pushes before it.
 */
import { aborted, type KintsugiError } from '../errors.js';

export class Room {
  private taken = 0;
  private ended: KintsugiError | undefined;
  private readonly waiting: (() => void)[] = [];

  constructor(private readonly limit: number) {}

  /**
   * Reserves `bytes`; more than the limit is reserved when nothing else is. The test and the reservation are
   * one synchronous step; otherwise pushes that begin at once would all find the same free bytes.
   * @throws ABORTED, or what `end` was told
   */
  async take(bytes: number, signal: AbortSignal | undefined): Promise<void> {
    while (this.taken > 0 && this.taken + bytes > this.limit) {
      if (signal?.aborted) throw aborted();
      let wake = () => {};
      await new Promise<void>((resolve) => {
        wake = resolve;
        this.waiting.push(wake);
        signal?.addEventListener('abort', wake);
      });
      signal?.removeEventListener('abort', wake);
      if (this.ended) throw this.ended;
    }
    this.taken += bytes;
  }

  free(bytes: number): void {
    this.taken -= bytes;
    this.wake();
  }

  /** Whoever waits is told that there will be no room. */
  end(error: KintsugiError): void {
    this.ended = error;
    this.wake();
  }

  private wake(): void {
    for (const waiter of this.waiting.splice(0)) waiter();
  }
}
