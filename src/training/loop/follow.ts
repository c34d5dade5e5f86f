/**
 * A source that grows, as a worker sees it. It takes ranges like those of any data. When there is none for
 * it, it looks how far the parts go and tells the scheduler. Without news it sleeps until the source reports
 * a change, or for a while where the source never does.
 */

import { KintsugiError } from '../../common/errors.js';
import type { Source } from '../../data/source.js';
import type { DatasetStatus, RangeLease } from '../../library/client/dataset.js';

/** Pause between two looks at a source that reports no changes, such as files of other machines. */
const POLL_MS = 1000;
/** Pause between news and a look, so that samples that come one by one are trained together. */
const LINGER_MS = 50;
/** A part must reach the size that another worker saw within this time, in this worker's view, too. */
const LAG_MS = 10_000;

/** A growing source, and word of its growth. */
export class FileLength {
  private known: readonly number[] = [];
  private news = false;
  /** Ends a sleep; true: because there is news. */
  private wake: (news: boolean) => void = () => {};
  private waiting = new AbortController();
  /** Looks run one after the other, so that the result of an older one never replaces that of a newer one. */
  private turn: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly source: Pick<Source, 'sizes' | 'changed' | 'resume'>,
    private readonly names: readonly string[],
    private readonly pollMs = POLL_MS,
    private readonly lagMs = LAG_MS,
  ) {}

  /** There is something to look at: ends a sleep, or the next one before it begins. */
  notify(): void {
    this.news = true;
    this.wake(true);
  }

  /** How far each part goes. @throws what the source throws, BAD_DATA for one that did not only grow */
  look(): Promise<number[]> {
    const look = this.turn.then(() => this.lookNow());
    this.turn = look.catch(() => {});
    return look;
  }

  private async lookNow(): Promise<number[]> {
    this.news = false;
    const sizes = (await this.source.sizes?.()) ?? [];
    if (sizes.length !== this.names.length) {
      const text = `the source has ${this.names.length} parts, and sizes() of ${sizes.length}`;
      throw new KintsugiError('BAD_DATA', text);
    }
    const smaller = sizes.findIndex((size, index) => size < (this.known[index] ?? 0));
    if (smaller >= 0) {
      const text = `${this.names[smaller]}: goes to ${sizes[smaller]}, and went to ${this.known[smaller]}`;
      throw new KintsugiError('BAD_DATA', `${text}; what is followed must only grow`);
    }
    this.known = sizes;
    return [...sizes];
  }

  /** Goes on with a run that knows parts up to here. @throws BAD_DATA for parts of something else */
  async resume(known: readonly number[]): Promise<void> {
    for (const [index, size] of known.entries()) await this.reached(index, size);
    await this.source.resume?.(known);
  }

  /** Resolves when there may be more, or at `interrupt`. */
  async change(): Promise<void> {
    const news = this.news || (await this.toldOf());
    if (news) await this.sleep(LINGER_MS, false);
  }

  /** Whether there was news before the poll was due. */
  private async toldOf(): Promise<boolean> {
    this.waiting = new AbortController();
    const { signal } = this.waiting;
    // A source that cannot tell is looked at regularly.
    void this.source.changed?.(signal).then(
      () => signal.aborted || this.wake(true),
      () => {},
    );
    const news = await this.sleep(this.pollMs, true);
    this.waiting.abort();
    return news;
  }

  interrupt(): void {
    this.wake(false);
  }

  /** Sleeps for `ms`; with `listening` news ends the sleep. True: news has ended it. */
  private sleep(ms: number, listening: boolean): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (news: boolean) => {
        clearTimeout(timer);
        this.wake = () => {};
        resolve(news);
      };
      const timer = setTimeout(end, ms, false).unref();
      this.wake = (news) => {
        if (listening || !news) end(news);
      };
    });
  }

  /** Resolves when a part goes so far here, too. @throws BAD_DATA when it does not */
  async reached(index: number, size: number): Promise<void> {
    let failure: unknown;
    for (let waited = 0; (this.known[index] ?? 0) < size; waited += this.pollMs) {
      await this.look().catch((error: unknown) => {
        failure = error;
      });
      const there = this.known[index] ?? 0;
      if (there >= size) return;
      if (waited >= this.lagMs) {
        const text = `${this.names[index]}: goes to ${there} here, and to ${size} elsewhere or before`;
        throw new KintsugiError('BAD_DATA', text, { cause: failure });
      }
      await new Promise((resolve) => setTimeout(resolve, this.pollMs));
    }
  }

  close(): void {
    this.waiting.abort();
  }
}

/** The part of a data set that following uses. */
export interface Extendable {
  acquire(clock: number): Promise<RangeLease | undefined>;
  extend(sizes: readonly number[]): Promise<number[]>;
}

/** The input that this worker appends to the one file, if it feeds it (see spool.ts). */
export interface Inlet {
  /** The input waits for room: for word that workers have taken more of the file. */
  readonly paused: boolean;
  /** The input appends nothing more. */
  readonly ended: boolean;
  /** Workers have taken the file up to here. */
  taken(end: number): void;
}

export interface Feeding {
  inlet: Inlet;
  status(): Promise<DatasetStatus | undefined>;
  /** The inlet has ended, and all its lines are finished or set aside: no range will be given any more. */
  onEnd(): void;
}

/**
 * Asks for a range, and as long as there is none looks for what has grown. @throws what `FileLength.look`
 * throws
 */
export class FileFollower {
  /** Sizes of the parts that the scheduler knows. */
  private known: number[];

  constructor(
    private readonly dataset: Extendable,
    private readonly growth: FileLength,
    parts: number,
    private readonly feeding?: Feeding,
  ) {
    this.known = Array.from({ length: parts }, () => 0);
  }

  async acquire(clock: number): Promise<RangeLease | undefined> {
    let waits = true;
    const asked = this.dataset.acquire(clock).finally(() => {
      waits = false;
      this.growth.interrupt();
    });
    asked.catch(() => {});
    const { inlet } = this.feeding ?? {};
    while (waits) {
      const last = inlet?.ended;
      const sizes = await this.growth.look();
      if (waits && sizes.some((size, file) => size > this.known[file]!)) {
        this.known = await this.dataset.extend(sizes);
      }
      if (waits && (last || inlet?.paused)) {
        const status = await this.feeding?.status();
        // If the scheduler still lets this worker wait, it has given out everything up to the sizes that it
        // knows.
        if (!waits) break;
        inlet?.taken(this.known[0]!);
        if (last && status && status.finished + status.setAside.length === status.ranges) {
          this.feeding?.onEnd();
          break;
        }
      }
      if (waits) await this.growth.change();
    }
    const lease = await asked;
    if (lease) inlet?.taken(lease.range.end);
    return lease;
  }
}
