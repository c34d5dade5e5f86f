/**
 * Pushes that are held back while a checkpoint with a barrier is begun. The scheduler asks for it. When no
 * call is in the middle of its pushes and every push is acknowledged, it is told so, with what was done of
 * ranges of samples. New calls wait until the scheduler says that they may go on, or until the time of the
 * hold is up.
 */
import { aborted } from '../../common/errors.js';
import type { Message, MessageOf } from '../../protocol/messages.js';

export type RangeReport = MessageOf<'held'>['ranges'][number];

export interface HoldingHost {
  tell(message: Message): void;
  /** Pushes that are under way. */
  unacknowledged(): number;
}

export class PushHold {
  /** Gives the progress of ranges; undefined: nobody reports any. */
  reports: (() => RangeReport[]) | undefined;
  private hold: { id: number; told: boolean; timer: NodeJS.Timeout } | undefined;
  private active = 0;
  private waiting: (() => void)[] = [];

  constructor(private readonly host: HoldingHost) {}

  /**
   * Before a call pushes: undefined, or what it waits for, which fails with ABORTED when the signal fires.
   * `leave` when its pushes are settled.
   */
  enter(signal?: AbortSignal): Promise<void> | undefined {
    if (this.hold) return this.enterLater(signal);
    this.active++;
    return undefined;
  }

  private async enterLater(signal: AbortSignal | undefined): Promise<void> {
    while (this.hold) await this.turn(signal);
    this.active++;
  }

  /** The end of the hold. @throws ABORTED */
  private async turn(signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted) throw aborted();
    let abort = () => {};
    try {
      await new Promise<void>((resolve, reject) => {
        this.waiting.push(resolve);
        abort = () => reject(aborted());
        signal?.addEventListener('abort', abort);
      });
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  leave(): void {
    this.active--;
    this.look();
  }

  onHold({ id, ms }: MessageOf<'hold'>): void {
    if (this.hold?.id !== id) {
      this.end();
      this.hold = { id, told: false, timer: setTimeout(() => this.end(), ms) };
      this.hold.timer.unref();
    }
    this.hold.told = false;
    this.look();
  }

  onResume({ id }: MessageOf<'resume'>): void {
    if (this.hold?.id === id) this.end();
  }

  /** Called at times, too, because a push that no call waits for any more may still be under way. */
  look(): void {
    if (!this.hold || this.hold.told || !this.isQuiet) return;
    // The caller that waited for the last push runs first, so that the progress includes its batch.
    setImmediate(() => this.tell());
  }

  private get isQuiet(): boolean {
    return this.active === 0 && this.host.unacknowledged() === 0;
  }

  private tell(): void {
    const { hold } = this;
    if (!hold || hold.told || !this.isQuiet) return;
    hold.told = true;
    this.host.tell({ t: 'held', id: hold.id, ranges: this.reports?.() ?? [] });
  }

  /** The calls that waited go on. */
  end(): void {
    clearTimeout(this.hold?.timer);
    this.hold = undefined;
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}
