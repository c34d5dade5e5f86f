/**
 * A place that is a directory. A file is written under a temporary name in the folder `.partial`, synced, and
 * only then gets its name; so a crash leaves no torn file. A name is given by `link` where it must be new:
 * that fails when the name is taken, also for two writers on different machines of a shared disk. Elsewhere
 * `rename` gives it.
 *
 * Temporary files of writers that died are removed when the next one begins.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { type FileHandle, link, open, readdir, rename, rmdir, stat, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { KintsugiError } from '../../common/errors.js';
import { makeFolder } from '../decisions/folder.js';
import { syncDirectory } from '../decisions/sync.js';
import { byteLength, slices, turn } from './bytes.js';
import {
  checkName,
  type GetOptions,
  MAX_GET_BYTES,
  nameTaken,
  noSuchFile,
  type Place,
  type PutOptions,
  placeFailed,
  refuseAborted,
  type StoredFile,
  type StoredObject,
  tooLarge,
} from './place.js';

/** Folder of the temporary files. Names of files of a place begin otherwise. */
export const PARTIAL = '.partial';
/** Where it cannot be known whether the writer of a temporary file lives, the file's age tells. */
const ABANDONED_MS = 60 * 60 * 1000;
/** Times that a folder may disappear while a file gets its name in it. */
const FOLDER_ATTEMPTS = 3;
/** Bytes of one read. */
const READ_BYTES = 4 * 1024 * 1024;
/** Sizes that are asked for at a time. */
const STATS = 16;

export class DirectoryPlace implements Place {
  readonly url: string;
  private readonly root: string;
  private prepared: Promise<void> | undefined;

  constructor(path: string) {
    this.root = resolve(path);
    this.url = pathToFileURL(this.root).href;
  }

  /** @throws CHECKPOINT_MISSING when there is no such directory, PLACE_FAILED */
  async checkExists(): Promise<void> {
    const found = await stat(this.root).catch((error: NodeJS.ErrnoException) => {
      if (isMissing(error) || error.code === 'ENOTDIR') return undefined;
      throw placeFailed(this.url, '', error);
    });
    if (!found) throw new KintsugiError('CHECKPOINT_MISSING', `${this.url}: there is no such directory`);
    if (!found.isDirectory()) throw placeFailed(this.url, '', 'a place is a directory, and this is a file');
  }

  async put(name: string, parts: readonly Uint8Array[], options: PutOptions = {}): Promise<StoredObject> {
    checkName(name);
    return this.working(name, async () => {
      const isNew = this.prepared === undefined;
      try {
        return await this.write(name, parts, options);
      } catch (error) {
        // The folders may be gone since they were made, so they are made again.
        this.prepared = undefined;
        if (isNew || !isMissing(error)) throw error;
        return this.write(name, parts, options);
      }
    });
  }

  private async write(
    name: string,
    parts: readonly Uint8Array[],
    options: PutOptions,
  ): Promise<StoredObject> {
    const temporary = join(this.root, PARTIAL, `${WRITER}-${randomBytes(6).toString('hex')}`);
    const target = join(this.root, name);
    await this.prepare();
    try {
      const stored = await writeFile(temporary, parts, options.signal);
      const named = await this.inFolder(target, () =>
        options.ifAbsent ? linkNew(temporary, target) : rename(temporary, target).then(() => true),
      );
      if (!named && !(await sameContent(target, parts))) throw nameTaken(name);
      await syncDirectory(dirname(target));
      if (options.ifAbsent) await this.syncAbove();
      return stored;
    } finally {
      await unlink(temporary).catch(ignoreMissing);
    }
  }

  async get(name: string, options: GetOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    checkName(name);
    const { from = 0, to = Number.MAX_SAFE_INTEGER, atMost = MAX_GET_BYTES, signal } = options;
    return this.working(name, async () => {
      const file = await open(join(this.root, name), 'r').catch((error: unknown) => {
        throw isMissing(error) ? noSuchFile(name) : error;
      });
      try {
        const bytes = Math.max(0, Math.min(to, (await file.stat()).size) - from);
        if (bytes > atMost) throw tooLarge(name, bytes, atMost);
        return await readWhole(file, from, bytes, name, signal);
      } finally {
        await file.close();
      }
    });
  }

  async *list(prefix: string): AsyncGenerator<StoredFile> {
    const folder = prefix.slice(0, prefix.lastIndexOf('/') + 1);
    const names = await this.working(prefix, () => this.namesIn(folder, prefix));
    for (let i = 0; i < names.length; i += STATS) {
      const sizes = names.slice(i, i + STATS).map((name) =>
        this.working(name, async () => {
          const bytes = await stat(join(this.root, name)).then(({ size }) => size, ignoreMissing);
          return bytes === undefined ? [] : [{ name, bytes }];
        }),
      );
      yield* (await Promise.all(sizes)).flat();
    }
  }

  /** Names of files in a folder and those below it. A folder that disappears meanwhile has none. */
  private async namesIn(folder: string, prefix: string): Promise<string[]> {
    const entries = await readdir(join(this.root, folder), { withFileTypes: true }).catch(
      (error: unknown) => {
        if (isMissing(error) || (error as NodeJS.ErrnoException).code === 'ENOTDIR') return [];
        throw error;
      },
    );
    const names: string[] = [];
    for (const entry of entries) {
      const name = `${folder}${entry.name}`;
      if (entry.name === PARTIAL) continue;
      const within = name.startsWith(prefix) || prefix.startsWith(`${name}/`);
      if (entry.isDirectory() && within) names.push(...(await this.namesIn(`${name}/`, prefix)));
      else if (entry.isFile() && name.startsWith(prefix)) names.push(name);
    }
    return names;
  }

  async remove(names: readonly string[]): Promise<void> {
    const folders = new Set<string>();
    for (const name of names) {
      checkName(name);
      folders.add(dirname(join(this.root, name)));
      await this.working(name, () => unlink(join(this.root, name)).catch(ignoreMissing));
    }
    for (const folder of folders) {
      await this.working(folder, async () => {
        await syncDirectory(folder).catch(ignoreMissing);
        // A folder that is not empty, or that another writer has just removed, stays as it is.
        if (folder !== this.root) await rmdir(folder).catch(() => undefined);
      });
    }
  }

  async close(): Promise<void> {}

  /** Removes temporary files of dead writers. @throws PLACE_FAILED */
  async removeAbandoned(): Promise<void> {
    await this.working(PARTIAL, () => this.prepare());
  }

  /**
   * Once for each opened place, and again after a failure: makes the folders, and removes what dead writers
   * left.
   */
  prepare(): Promise<void> {
    this.prepared ??= makeFolder(join(this.root, PARTIAL))
      .then(() => sweep(join(this.root, PARTIAL)))
      .catch((error: unknown) => {
        this.prepared = undefined;
        throw error;
      });
    return this.prepared;
  }

  /** Gives a file its name, in a folder that is made for it and that `remove` may take away meanwhile. */
  private async inFolder<T>(target: string, work: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      await makeFolder(dirname(target));
      try {
        return await work();
      } catch (error) {
        if (!isMissing(error) || attempt === FOLDER_ATTEMPTS) throw error;
      }
    }
  }

  /**
   * Another writer may have made the folders of a checkpoint, and have died before they were durable. The
   * folder above the place may be one that is not to be read: then its owner has made the place.
   */
  private async syncAbove(): Promise<void> {
    await syncDirectory(this.root);
    await syncDirectory(dirname(this.root)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EACCES' && error.code !== 'EPERM') throw error;
    });
  }

  /** Errors of the file system become PLACE_FAILED. */
  private async working<T>(name: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw error instanceof KintsugiError ? error : placeFailed(this.url, name, error);
    }
  }
}

// ---- files

async function writeFile(
  path: string,
  parts: readonly Uint8Array[],
  signal: AbortSignal | undefined,
): Promise<StoredObject> {
  const hash = createHash('sha256');
  const file = await open(path, 'wx');
  try {
    let position = 0;
    for (const slice of slices(parts)) {
      refuseAborted(signal);
      // The slice is hashed while a thread of libuv writes it.
      const hashing = turn().then(() => {
        for (const piece of slice) hash.update(piece);
      });
      const [written] = await Promise.all([writeAll(file, slice, position), hashing]);
      position += written;
    }
    await file.sync();
    return { bytes: position, sha256: hash.digest('hex') };
  } finally {
    await file.close();
  }
}

/** A system call may write less than it was asked for. */
async function writeAll(file: FileHandle, slice: readonly Uint8Array[], position: number): Promise<number> {
  const bytes = byteLength(slice);
  let rest = [...slice];
  for (let done = 0; done < bytes; ) {
    let { bytesWritten: written } = await file.writev(rest, position + done);
    done += written;
    rest = rest.flatMap((piece) => {
      const gone = Math.min(written, piece.byteLength);
      written -= gone;
      return gone === piece.byteLength ? [] : [piece.subarray(gone)];
    });
  }
  return bytes;
}

async function readWhole(
  file: FileHandle,
  from: number,
  bytes: number,
  name: string,
  signal: AbortSignal | undefined,
): Promise<Uint8Array<ArrayBuffer>> {
  const data = new Uint8Array(Buffer.allocUnsafeSlow(bytes).buffer);
  for (let done = 0; done < bytes; ) {
    refuseAborted(signal);
    const { bytesRead } = await file.read(data, done, Math.min(READ_BYTES, bytes - done), from + done);
    if (bytesRead === 0) {
      throw new KintsugiError('BAD_CHECKPOINT', `${name}: the file became shorter while it was read`);
    }
    done += bytesRead;
  }
  return data;
}

/** Gives a file a second name; false: the name is taken. */
async function linkNew(path: string, name: string): Promise<boolean> {
  return link(path, name).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'EEXIST') return false;
      throw error;
    },
  );
}

async function sameContent(path: string, parts: readonly Uint8Array[]): Promise<boolean> {
  const file = await open(path, 'r');
  try {
    const bytes = byteLength(parts);
    if ((await file.stat()).size !== bytes) return false;
    let position = 0;
    for (const slice of slices(parts)) {
      const found = await readWhole(file, position, byteLength(slice), path, undefined);
      if (Buffer.compare(found, Buffer.concat(slice)) !== 0) return false;
      position += found.byteLength;
    }
    return true;
  } finally {
    await file.close();
  }
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}

function ignoreMissing(error: unknown): undefined {
  if (!isMissing(error)) throw error;
}

// ---- temporary files

/**
 * Where process ids have a meaning: this boot of this machine, and this namespace of processes. Containers
 * on one machine may share the host name.
 */
function processesOf(): string {
  const parts = [hostname()];
  for (const part of [
    () => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
    () => readlinkSync('/proc/self/ns/pid'),
  ]) {
    try {
      parts.push(part());
    } catch {
      // Without Linux the host name must suffice.
    }
  }
  return createHash('sha256').update(parts.join()).digest('hex').slice(0, 12);
}

const PROCESSES = processesOf();
const WRITER = `${PROCESSES}-${process.pid}`;

/** Removes temporary files whose writer is known to be dead, or that are old. */
async function sweep(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    const [processes, pid] = name.split('-');
    const dead = processes === PROCESSES && !isAlive(Number(pid));
    if (dead || (await isOld(path))) await unlink(path).catch(ignoreMissing);
  }
}

async function isOld(path: string): Promise<boolean> {
  const changed = await stat(path).then(({ mtimeMs }) => mtimeMs, ignoreMissing);
  return changed !== undefined && Date.now() - changed > ABANDONED_MS;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
