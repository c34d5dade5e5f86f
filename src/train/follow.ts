/**
 * Files that grow, as a worker sees them. It takes ranges like those of any file. When there is none for it,
 * it looks how far the whole lines go, waits until they are on disk, and tells the scheduler. A line without
 * its newline is not counted yet. Without news it sleeps until the file system reports a change, or for a
 * while where the file system never does.
 */
import { type FSWatcher, watch } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import type { DatasetStatus, Lease } from '../client/dataset.js';
import { describe, KintsugiError } from '../errors.js';
import { MAX_LINE_BYTES } from './criteo.js';

/** For file systems that do not tell, such as those of other machines. */
const POLL_MS = 1000;
/** After news: lines that are written one by one are trained together. */
const LINGER_MS = 50;
/** What another worker has seen of a file must show here within this time. */
const LAG_MS = 10_000;
const NEWLINE = 10;

interface Seen {
  /** End of the last whole line. */
  whole: number;
  /** Which file it is. */
  inode: number | undefined;
}

/** Growing files, and word of their growth. */
export class GrowingFiles {
  private readonly seen: Seen[];
  private readonly watchers: FSWatcher[] = [];
  private news = false;
  /** Ends a sleep; true: because there is news. */
  private wake: (news: boolean) => void = () => {};

  constructor(
    readonly files: readonly string[],
    private readonly pollMs = POLL_MS,
    private readonly lagMs = LAG_MS,
  ) {
    this.seen = files.map(() => ({ whole: 0, inode: undefined }));
    for (const file of files) {
      try {
        // Without a watcher the files are looked at regularly.
        const watcher = watch(file, { persistent: false }, () => this.notify());
        this.watchers.push(watcher.on('error', () => {}));
      } catch {}
    }
  }

  /** There is something to look at: ends a sleep, or the next one before it begins. */
  notify(): void {
    this.news = true;
    this.wake(true);
  }

  /**
   * Bytes of each file up to the end of its last whole line, all of them on disk. @throws BAD_DATA for one
   * that did not only grow
   */
  async look(): Promise<number[]> {
    this.news = false;
    for (const [index, file] of this.files.entries()) {
      try {
        await lookAt(file, this.seen[index]!);
      } catch (error) {
        if (error instanceof KintsugiError) throw error;
        throw new KintsugiError('BAD_DATA', `${file}: ${describe(error)}`, { cause: error });
      }
    }
    return this.seen.map(({ whole }) => whole);
  }

  /** Resolves when there may be more, or at `interrupt`. */
  async change(): Promise<void> {
    const news = this.news || (await this.sleep(this.pollMs, true));
    if (news) await this.sleep(LINGER_MS, false);
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

  /** Resolves when a file has so many bytes here, too. @throws BAD_DATA when it does not get them */
  async reached(index: number, size: number): Promise<void> {
    const file = this.files[index] ?? '';
    for (let waited = 0; ; waited += this.pollMs) {
      const there = await stat(file).catch(() => undefined);
      if (there && there.size >= size) return;
      if (waited >= this.lagMs) {
        const text = `${file}: has ${there?.size ?? 0} bytes here, and ${size} elsewhere or before`;
        throw new KintsugiError('BAD_DATA', text);
      }
      await new Promise((resolve) => setTimeout(resolve, this.pollMs));
    }
  }

  close(): void {
    for (const watcher of this.watchers) watcher.close();
  }
}

async function lookAt(file: string, seen: Seen): Promise<void> {
  const handle = await open(file);
  try {
    const { size, ino } = await handle.stat();
    // An incomplete line may still be removed: the scheduler was not told of it.
    if (size < seen.whole || ino !== (seen.inode ?? ino)) {
      throw new KintsugiError('BAD_DATA', `${file}: was cut or replaced; what is followed must only grow`);
    }
    seen.inode = ino;
    const whole = await wholeLines(handle, file, size, seen.whole);
    if (whole === seen.whole) return;
    // Sync it first: the writer may not have, and the scheduler must not know of lines that a power failure
    // would remove.
    await handle.datasync();
    seen.whole = whole;
  } finally {
    await handle.close();
  }
}

/**
 * End of the last whole line in `size` bytes of a file, where one is known to end at `known`. @throws
 * BAD_DATA
 */
export async function wholeLines(
  handle: FileHandle,
  file: string,
  size: number,
  known: number,
): Promise<number> {
  if (size === known) return known;
  const from = Math.max(known, size - MAX_LINE_BYTES - 1);
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - from), 0, size - from, from);
  const newline = buffer.subarray(0, bytesRead).lastIndexOf(NEWLINE);
  if (newline < 0 && from > known) {
    throw new KintsugiError('BAD_DATA', `${file}: ends in a line of more than ${MAX_LINE_BYTES} bytes`);
  }
  return newline < 0 ? known : from + newline + 1;
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
 * Asks for a range, and as long as there is none looks for what has grown. @throws BAD_DATA, see
 * `GrowingFiles.look`
 */
export class Follower {
  /** What the scheduler knows. */
  private known: number[];

  constructor(
    private readonly dataset: Extendable,
    private readonly files: GrowingFiles,
    private readonly feeding?: Feeding,
  ) {
    this.known = files.files.map(() => 0);
  }

  async acquire(clock: number): Promise<Lease | undefined> {
    let waits = true;
    const asked = this.dataset.acquire(clock).finally(() => {
      waits = false;
      this.files.interrupt();
    });
    asked.catch(() => {});
    const { inlet } = this.feeding ?? {};
    while (waits) {
      const last = inlet?.ended;
      const sizes = await this.files.look();
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
      if (waits) await this.files.change();
    }
    const lease = await asked;
    if (lease) inlet?.taken(lease.range.end);
    return lease;
  }
}
