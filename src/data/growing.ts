/**
 * Files that grow. A line without its newline is not counted yet. Lines that are counted are on disk, because
 * the scheduler must not know of lines that a power failure would remove.
 */
import { type FSWatcher, watch } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { describe, KintsugiError } from '../common/errors.js';
import { bad, readBytes, sizeOf } from './bytes.js';
import { linesBefore, longLine, MAX_LINE_BYTES } from './lines.js';

const NEWLINE = 10;

interface SeenSize {
  /** End of the last whole line. */
  whole: number;
  /** The inode of the file at the first look; another one means that the file was replaced. */
  inode: number | undefined;
}

/** How far the whole lines of files go, and word of their growth. */
export class GrowingFiles {
  private readonly seen: SeenSize[];
  private watchers: FSWatcher[] | undefined;
  private news = false;
  private wake: () => void = () => {};

  constructor(readonly files: readonly string[]) {
    this.seen = files.map(() => ({ whole: 0, inode: undefined }));
  }

  /** @throws BAD_DATA for a file that did not only grow */
  async sizes(): Promise<number[]> {
    this.watch();
    this.news = false;
    for (const [index, file] of this.files.entries()) {
      try {
        await lookAt(file, this.seen[index]!);
      } catch (error) {
        if (error instanceof KintsugiError) throw error;
        throw bad(`${file}: ${describe(error)}`, error);
      }
    }
    return this.seen.map(({ whole }) => whole);
  }

  /**
   * Takes over how far a run has gone before. @throws BAD_DATA for a file in which no line ends there: it was
   * cut and written anew, or is another one
   */
  async resume(known: readonly number[]): Promise<void> {
    for (const [index, file] of this.files.entries()) {
      const whole = known[index]!;
      const last = whole > 0 ? new Uint8Array(await readBytes(file, whole - 1, whole))[0] : NEWLINE;
      if (last !== NEWLINE)
        throw bad(
          `${file}: no line ends at byte ${whole}, where this run has read to: give the file that the run ` +
            'began with, or another --run',
        );
      const seen = this.seen[index]!;
      seen.whole = Math.max(seen.whole, whole);
    }
  }

  /** Resolves when the file system tells of a change since the last look, or at the signal. */
  changed(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        signal.removeEventListener('abort', end);
        this.wake = () => {};
        resolve();
      };
      this.wake = end;
      signal.addEventListener('abort', end, { once: true });
      if (this.news || signal.aborted) end();
    });
  }

  private watch(): void {
    if (this.watchers) return;
    this.watchers = [];
    for (const file of this.files) {
      try {
        // Without a watcher the files are looked at regularly.
        const watcher = watch(file, { persistent: false }, () => this.tell());
        this.watchers.push(watcher.on('error', () => {}));
      } catch {}
    }
  }

  private tell(): void {
    this.news = true;
    this.wake();
  }

  close(): void {
    for (const watcher of this.watchers ?? []) watcher.close();
    this.watchers = [];
  }
}

async function lookAt(file: string, seen: SeenSize): Promise<void> {
  await sizeOf(file);
  const handle = await open(file);
  try {
    const { size, ino } = await handle.stat();
    // An incomplete line may still be removed: the scheduler was not told of it.
    if (size < seen.whole || ino !== (seen.inode ?? ino))
      throw bad(`${file}: was cut or replaced; what is followed must only grow`);
    seen.inode = ino;
    const whole = await wholeLines(handle, file, size, seen.whole);
    if (whole === seen.whole) return;
    // The writer may not have synced its lines.
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
  if (newline < 0 && from > known) throw longLine(file, await linesBefore(file, size));
  return newline < 0 ? known : from + newline + 1;
}
