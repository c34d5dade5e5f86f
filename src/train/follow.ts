/**
 * A source that grows, as a worker sees it. It takes ranges like those of any data. When there is none for
 * it, it looks how far the parts go and tells the scheduler. Without news it sleeps until the source reports
 * a change, or for a while where the source never does.
 */
import type { DatasetStatus, Lease } from '../client/dataset.js';
import type { Source } from '../data/source.js';
import { KintsugiError } from '../errors.js';

/** For sources that do not tell, such as files of other machines. */
const POLL_MS = 1000;
/** After news: samples that come one by one are trained together. */
const LINGER_MS = 50;
/** What another worker has seen of a part must show here within this time. */
const LAG_MS = 10_000;

/** A growing source, and word of its growth. */
export class Growth {
  private known: readonly number[] = [];
  private news = false;
  /** Ends a sleep; true: because there is news. */
  private wake: (news: boolean) => void = () => {};
  private waiting = new AbortController();
  /** One look after the other: an older one must not come in after a newer one. */
  private turn: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly source: Pick<Source, 'sizes' | 'changed'>,
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

  /** Whether news came. */
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

/** What following needs of the data set. */
export interface Extendable {
  acquire(clock: number): Promise<Lease | undefined>;
  extend(sizes: readonly number[]): Promise<number[]>;
}

/** What the one file is fed from, when this worker feeds it (see spool.ts). */
export interface Inlet {
  /** It waits for room: for word that workers have taken more. */
  readonly paused: boolean;
  /** Nothing more will come. */
  readonly ended: boolean;
  /** Workers have taken the file up to here. */
  taken(end: number): void;
}

export interface Feeding {
  inlet: Inlet;
  status(): Promise<DatasetStatus | undefined>;
  /** The inlet has ended, and all that came is finished or set aside: no range will be given any more. */
  onEnd(): void;
}

/**
 * Asks for a range, and as long as there is none looks for what has grown. @throws what `Growth.look` throws
 */
export class Follower {
  /** What the scheduler knows. */
  private known: number[];

  constructor(
    private readonly dataset: Extendable,
    private readonly growth: Growth,
    parts: number,
    private readonly feeding?: Feeding,
  ) {
    this.known = Array.from({ length: parts }, () => 0);
  }

  async acquire(clock: number): Promise<Lease | undefined> {
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
