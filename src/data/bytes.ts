/** Bytes of data files, decompressed, and the failures of reading them in the words of a user. */
import { createHash } from 'node:crypto';
import { createReadStream, type Stats } from 'node:fs';
import { access, constants, open, stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { describe, KintsugiError } from '../common/errors.js';
import { systemLimit } from '../common/system-errors.js';
import type { StoredFile } from '../stores/checkpoint/place.js';
import { isRemote, listedFile, remoteBytes, remoteChunks } from './object-store.js';
import { type Packing, packing, takenBy } from './packing.js';

const READ_BYTES = 256 * 1024;

/** BAD_DATA, or SYSTEM_LIMIT where the cause is a limit of the system and not the file. */
export function bad(message: string, cause?: unknown): KintsugiError {
  const code = systemLimit(cause) === undefined ? 'BAD_DATA' : 'SYSTEM_LIMIT';
  return new KintsugiError(code, message, cause === undefined ? undefined : { cause });
}

/** A failure of reading a file, with its name. A package that is missing has nothing to do with the file. */
function unreadable(file: string, error: unknown): KintsugiError {
  const other = error instanceof KintsugiError && error.code === 'DEPENDENCY_MISSING';
  return other ? error : bad(`${file}: ${describe(error)}`, error);
}

function kindOf(stats: Stats): string {
  if (stats.isDirectory()) return 'a directory';
  if (stats.isFIFO()) return 'a pipe';
  return stats.isSocket() ? 'a socket' : 'a device';
}

/**
 * Data is in regular files, and nothing else is ever opened: workers read parts of it, and read them again
 * after a loss. A pipe gives its bytes once, and to open one that nobody writes to blocks a thread for ever.
 */
async function sizeOfRegular(file: string): Promise<number> {
  const stats = await stat(file);
  if (stats.isFile()) return stats.size;
  throw new Error(`must be a regular file, whose parts can be read again; it is ${kindOf(stats)}`);
}

/** A file of an object store. @throws BAD_DATA, also when there is none */
export async function remoteFile(file: string): Promise<StoredFile> {
  try {
    const found = await listedFile(file);
    if (!found) throw new Error('there is no such file');
    return found;
  } catch (error) {
    throw unreadable(file, error);
  }
}

/** Bytes of a file, as it is. @throws BAD_DATA, also for what is no regular file */
export async function sizeOf(file: string): Promise<number> {
  if (isRemote(file)) return (await remoteFile(file)).bytes;
  try {
    return await sizeOfRegular(file);
  } catch (error) {
    throw unreadable(file, error);
  }
}

/** A file in two pieces of memory in turn: one is read while the other is used. */
async function* plainChunks(file: string, from: number): AsyncGenerator<Buffer> {
  await sizeOfRegular(file);
  const handle = await open(file);
  let next: Promise<Buffer> | undefined;
  try {
    const memory = [0, 1].map(() => Buffer.allocUnsafeSlow(READ_BYTES));
    const read = async (turn: number, at: number) => {
      const { buffer, bytesRead } = await handle.read(memory[turn % 2]!, 0, READ_BYTES, at);
      return buffer.subarray(0, bytesRead);
    };
    next = read(0, from);
    for (let [turn, at] = [1, from]; ; turn++) {
      const chunk = await next;
      if (chunk.length === 0) return;
      at += chunk.length;
      next = read(turn, at);
      // The consumer may never ask for the next chunk, and its failure must not count as unhandled.
      next.catch(() => {});
      yield chunk;
    }
  } finally {
    await next?.catch(() => {});
    await handle.close();
  }
}

/**
 * Bytes of a file from `from` on, decompressed. A chunk is valid until the next one is asked for. Every
 * failure of the file system or of a decompressor becomes BAD_DATA with the file's name. A compressed file
 * can only be read from its start: bytes before `from` are thrown away.
 */
export async function* chunks(file: string, from = 0, onRead = () => {}): AsyncGenerator<Buffer> {
  const { packing: packed } = packing(file);
  if (!packed && !isRemote(file)) {
    try {
      for await (const chunk of plainChunks(file, from)) {
        onRead();
        yield chunk;
      }
    } catch (error) {
      throw unreadable(file, error);
    }
    return;
  }
  if (!isRemote(file)) await sizeOf(file);
  const unpack = await packed?.unpack(READ_BYTES);
  const start = unpack ? 0 : from;
  const raw: Readable = isRemote(file)
    ? Readable.from(remoteChunks(file, start), { objectMode: false, highWaterMark: READ_BYTES })
    : createReadStream(file, { highWaterMark: READ_BYTES, start });
  if (unpack) {
    raw.on('error', (error) => unpack.destroy(error));
    raw.pipe(unpack);
  }
  try {
    let skip = unpack ? from : 0;
    for await (const chunk of unpack ?? raw) {
      const bytes = chunk as Buffer;
      onRead();
      if (skip < bytes.length) yield skip > 0 ? bytes.subarray(skip) : bytes;
      skip = Math.max(0, skip - bytes.length);
    }
    if (packed && unpack) await checkRest(file, packed, takenBy(unpack));
  } catch (error) {
    throw unreadable(file, error);
  } finally {
    raw.destroy();
    unpack?.destroy();
  }
}

/** Throws where a decompressor has left something of a file that is no padding. */
async function checkRest(file: string, { padded }: Packing, taken = Number.POSITIVE_INFINITY): Promise<void> {
  const size = await sizeOf(file);
  for (let at = taken; at < size; at += READ_BYTES) {
    const rest = new Uint8Array(await readBytes(file, at, Math.min(size, at + READ_BYTES)));
    if (!padded || rest.some((byte) => byte !== 0))
      throw new Error('something is behind the end of what is compressed');
  }
}

/** Bytes of each end of a file that its mark is made of. The end of a parquet file is about all of it. */
const MARK_BYTES = 32 * 1024;

/** A text that differs between files with other bytes at an end, or more of them. @throws BAD_DATA */
export async function markOf(file: string): Promise<string> {
  const size = await sizeOf(file);
  const hash = createHash('sha256').update(`${size}\n`);
  const ends = size === 0 ? [] : new Set([0, Math.max(0, size - MARK_BYTES)]);
  for (const from of ends)
    hash.update(new Uint8Array(await readBytes(file, from, Math.min(size, from + MARK_BYTES))));
  return hash.digest('hex').slice(0, 32);
}

/** Bytes `from` to `to` of a file, as it is. @throws BAD_DATA where it ends before */
export async function readBytes(file: string, from: number, to: number): Promise<ArrayBuffer> {
  try {
    if (isRemote(file)) return (await remoteBytes(file, from, to)).slice().buffer;
    const handle = await open(file);
    try {
      const bytes = new Uint8Array(to - from);
      for (let at = 0; at < bytes.length; ) {
        const { bytesRead } = await handle.read(bytes, at, bytes.length - at, from + at);
        if (bytesRead === 0) throw new Error(`it ends before byte ${to}`);
        at += bytesRead;
      }
      return bytes.buffer;
    } finally {
      await handle.close();
    }
  } catch (error) {
    throw unreadable(file, error);
  }
}

/** Throws for a file that cannot be read at once, and not only when the files before it are done. */
export async function checkFiles(files: readonly string[]): Promise<void> {
  if (files.length === 0) throw new KintsugiError('BAD_ARGUMENT', 'no data files were given');
  for (const file of files) {
    if (isRemote(file)) {
      await sizeOf(file);
      continue;
    }
    try {
      await access(file, constants.R_OK);
    } catch (error) {
      throw bad(`${file}: cannot be read (${describe(error)})`, error);
    }
    await sizeOf(file);
  }
}
