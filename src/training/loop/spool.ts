/**
 * Keeps standard input, which can be read only once, as a file that grows. Whole lines are appended to a
 * spool, and the spool is followed like any other file. Only this process writes it. The spool keeps
 * everything. It may be ahead of the workers by a limited number of bytes, so a fast producer waits.
 */
import { fstat as fstatOf } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { causedBy, KintsugiError } from '../../common/errors.js';
import { wholeLines } from '../../data/growing.js';
import { MAX_LINE_BYTES } from '../../data/lines.js';
import { syncDirectory } from '../../stores/decisions/sync.js';
import type { Inlet } from './follow.js';

/** Bytes that may be spooled and not taken by any worker. */
export const MAX_SPOOL_LEAD = 64 * 2 ** 20;
const NEWLINE = 10;
const fstat = promisify(fstatOf);

export class Spool implements Inlet {
  /** No byte is read any more: the input has ended or failed, or the spool was stopped. */
  ended = false;
  /** Why the input ended early. The lines before that are in the spool. */
  failure: KintsugiError | undefined;
  /** Lines that were appended. `dropped`: bytes of a line that was under way at `stop` and is lost. */
  lines = 0;
  dropped = 0;
  /** The spool up to here is with workers, or trained. Not known before the first word of it. */
  private given = 0;
  private stopping = false;
  /** The spool waits for the next piece of the input, and has no part of it. */
  private idle = false;
  private input: Readable | undefined;
  private filled: Promise<void> = Promise.resolve();
  private wake: () => void = () => {};

  private constructor(
    readonly file: string,
    private readonly handle: FileHandle,
    /** Bytes in the file, all of whole lines. */
    private bytes: number,
    /** Bytes of half a line that a crash had left, and that were cut off. */
    readonly cut: number,
    private readonly maxLead: number,
  ) {}

  /**
   * Opens a spool to append to, or makes one. `inputFd`: the input that will be appended, which must be
   * another file.
   * @throws BAD_ARGUMENT for what cannot be written, BAD_DATA for what does not look like lines
   */
  static async open(file: string, maxLead = MAX_SPOOL_LEAD, inputFd?: number): Promise<Spool> {
    const handle = await attempt(file, () => open(file, 'a+'));
    try {
      const { size, ino, dev } = await attempt(file, () => regular(handle));
      if (inputFd !== undefined) await checkInput(inputFd, file, { ino, dev });
      const whole = await wholeLines(handle, file, size, 0);
      if (whole < size) await attempt(file, () => handle.truncate(whole));
      // Sync the directory too, or a new file may be gone after a power failure.
      if (size === 0) await attempt(file, () => syncDirectory(dirname(file)));
      return new Spool(file, handle, whole, size - whole, maxLead);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  get size(): number {
    return this.bytes;
  }

  /** Bytes that nobody has taken yet. */
  get lead(): number {
    return Math.max(0, this.bytes - this.given);
  }

  get paused(): boolean {
    return !this.ended && this.lead >= this.maxLead;
  }

  taken(end: number): void {
    this.given = Math.max(this.given, end);
    if (!this.paused) this.wake();
  }

  /**
   * The scheduler knows of `known` bytes. @throws BAD_DATA when the spool has fewer: new lines would be taken
   * for old ones
   */
  resume(known: number): void {
    if (known <= this.bytes) return;
    const text = `has ${this.bytes} bytes, and ${known} were there before`;
    throw new KintsugiError(
      'BAD_DATA',
      `${this.file}: ${text}: give the spool that the run began with, or another --run`,
    );
  }

  /**
   * Appends the input until its end or `close`; never rejects. `onNews`: the file has grown, or this has
   * ended.
   */
  fill(input: Readable, onNews: () => void): Promise<void> {
    this.input = input;
    this.filled = this.follow(input, onNews)
      .catch((error: unknown) => {
        // After `stop` the input was closed on purpose.
        if (!this.stopping) this.failure = asFailure(error);
      })
      .then(() => {
        this.ended = true;
        onNews();
      });
    return this.filled;
  }

  private async follow(input: Readable, onNews: () => void): Promise<void> {
    let rest: Buffer = Buffer.alloc(0);
    await this.room();
    const chunks = input[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    for (;;) {
      // Bytes that were read ahead exist nowhere else any more.
      if (this.stopping) rest = await this.takeAll(rest, input);
      this.dropped = rest.length;
      if (this.stopping) return;
      this.idle = true;
      const next = await chunks.next();
      this.idle = false;
      if (next.done) break;
      rest = await this.take(rest, next.value);
      onNews();
      await this.room();
    }
    if (this.stopping) return;
    this.dropped = 0;
    // The end of the input is the end of its last line, as in a file that does not grow.
    if (rest.length > 0) await this.append(Buffer.concat([rest, Buffer.of(NEWLINE)]), 1);
  }

  private async takeAll(rest: Buffer, input: Readable): Promise<Buffer> {
    let left = rest;
    for (let chunk = input.read(); chunk !== null; chunk = input.read()) left = await this.take(left, chunk);
    return left;
  }

  /** Appends the whole lines; returns the rest. */
  private async take(rest: Buffer, chunk: Buffer): Promise<Buffer> {
    const data = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    let start = 0;
    let count = 0;
    let newline = data.indexOf(NEWLINE);
    while (newline >= 0 && newline - start <= MAX_LINE_BYTES) {
      start = newline + 1;
      count += 1;
      newline = data.indexOf(NEWLINE, start);
    }
    if (start > 0) await this.append(data.subarray(0, start), count);
    if ((newline < 0 ? data.length : newline) - start > MAX_LINE_BYTES) {
      const text = `standard input: line ${this.lines + 1} has more than ${MAX_LINE_BYTES} bytes`;
      throw new KintsugiError('BAD_DATA', text);
    }
    return data.subarray(start);
  }

  private async append(data: Buffer, lines: number): Promise<void> {
    const { handle, file } = this;
    await attempt(file, async () => {
      const { size } = await handle.stat();
      if (size !== this.bytes) {
        const text = `has ${size} bytes where ${this.bytes} were written: somebody else writes it, too`;
        throw new KintsugiError('BAD_DATA', `${file}: ${text}`);
      }
      for (let at = 0; at < data.length; ) {
        const { bytesWritten } = await handle.write(data, at, data.length - at);
        at += bytesWritten;
      }
    });
    this.bytes += data.length;
    this.lines += lines;
  }

  /** Resolves when more may be read. */
  private async room(): Promise<void> {
    while (this.paused && !this.stopping) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }

  /** Stops reading; resolves when every whole line that was read is appended. */
  async close(): Promise<void> {
    this.stopping ||= !this.ended;
    this.wake();
    // Ends a pending read, which would otherwise never end. Lines that were read are still appended.
    if (this.idle) this.input?.destroy();
    await this.filled;
    this.input?.destroy();
    await this.handle.close();
  }
}

/** Failures of the file system in the words of a user. */
async function attempt<T>(file: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof KintsugiError) throw error;
    throw causedBy(error, 'BAD_ARGUMENT', `--spool ${file} cannot be written`);
  }
}

async function regular(handle: FileHandle) {
  const stat = await handle.stat();
  if (!stat.isFile()) throw new Error('it is not a regular file');
  return stat;
}

/** Refuses an input that cannot be read, or that would never end because it is the spool itself. */
async function checkInput(fd: number, file: string, spool: { ino: number; dev: number }): Promise<void> {
  const input = await fstat(fd).catch(() => undefined);
  if (input?.isDirectory()) throw new KintsugiError('BAD_ARGUMENT', 'standard input is a directory');
  if (input?.ino === spool.ino && input.dev === spool.dev)
    throw new KintsugiError('BAD_ARGUMENT', `${file} cannot be both standard input and its spool`);
}

function asFailure(error: unknown): KintsugiError {
  if (error instanceof KintsugiError) return error;
  return causedBy(error, 'BAD_DATA', 'standard input');
}
