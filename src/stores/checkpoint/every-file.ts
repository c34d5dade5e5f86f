/**
 * Every file below a place, whoever wrote it and whatever its name is: temporary files, copies, files of
 * other programs. Files are read as they are.
 */
import { open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { checkpointOfManifest, checkpointOfSegment } from '../../protocol/checkpoints.js';
import { DirectoryPlace, PARTIAL } from './directory.js';
import { openExistingPlace } from './open.js';
import { type Place, placeFailed } from './place.js';
import { S3Place } from './s3.js';

/** A file below a place. */
export interface AnyFile {
  /** From the root of the place. */
  name: string;
  bytes: number;
  /** Why it cannot be read: it is no regular file. */
  problem?: string;
}

export interface EveryFile {
  readonly url: string;
  list(): AsyncIterable<AnyFile>;
  /** Bytes from..to, fewer at the end of the file; undefined: the file is gone. @throws PLACE_FAILED */
  read(name: string, from: number, to: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** True: the store keeps what is removed, as a bucket with versioning does. `unknown`: it does not say. */
  keepsRemoved(): Promise<boolean | 'unknown'>;
  close(): Promise<void>;
}

/** A name of a file that writers of checkpoints give, so that a purge may remove it. */
export function isOwnFile(name: string): boolean {
  const number = checkpointOfSegment(name) ?? checkpointOfManifest(name);
  return number !== undefined || name.startsWith(`${PARTIAL}/`);
}

/** @throws CHECKPOINT_MISSING when there is no such directory, and what `openPlace` throws */
export async function openEveryFile(url: string): Promise<EveryFile> {
  const place = await openExistingPlace(url);
  if (place instanceof DirectoryPlace) return new FilesOfDirectory(fileURLToPath(place.url));
  await place.close();
  return new FilesOfStore(await S3Place.open(url, { anyNames: true }));
}

class FilesOfDirectory implements EveryFile {
  constructor(readonly url: string) {}

  async *list(): AsyncGenerator<AnyFile> {
    yield* this.below('');
  }

  private async *below(folder: string): AsyncGenerator<AnyFile> {
    const entries = await this.working(folder, () =>
      readdir(join(this.url, folder), { withFileTypes: true, encoding: 'buffer' }),
    );
    for (const entry of entries ?? []) {
      const name = `${folder}${entry.name.toString()}`;
      // Such a name is another one as text, of which there is no file.
      const isText = Buffer.from(entry.name.toString()).equals(entry.name);
      if (!isText) yield { name, bytes: 0, problem: 'its name is not UTF-8' };
      else if (entry.isDirectory()) yield* this.below(`${name}/`);
      else if (!entry.isFile())
        yield { name, bytes: 0, problem: 'it is no regular file, and is not followed' };
      else {
        const bytes = await this.working(name, () => this.sizeOf(name));
        if (bytes !== undefined) yield { name, bytes };
      }
    }
  }

  private async sizeOf(name: string): Promise<number> {
    const file = await open(join(this.url, name), 'r');
    try {
      return (await file.stat()).size;
    } finally {
      await file.close();
    }
  }

  read(name: string, from: number, to: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.working(name, async () => {
      const file = await open(join(this.url, name), 'r');
      try {
        const data = new Uint8Array(Buffer.allocUnsafeSlow(to - from).buffer);
        let done = 0;
        for (;;) {
          const { bytesRead } = await file.read(data, done, data.length - done, from + done);
          done += bytesRead;
          if (bytesRead === 0 || done === data.length) return data.subarray(0, done);
        }
      } finally {
        await file.close();
      }
    });
  }

  async keepsRemoved(): Promise<false> {
    return false;
  }

  async close(): Promise<void> {}

  /** Undefined: there is no such file any more. */
  private async working<T>(name: string, work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw placeFailed(this.url, name, error);
    }
  }
}

class FilesOfStore implements EveryFile {
  constructor(private readonly place: S3Place) {}

  get url(): string {
    return this.place.url;
  }

  list(): AsyncIterable<AnyFile> {
    return this.place.list('');
  }

  async read(name: string, from: number, to: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    try {
      return await this.place.get(name, { from, to });
    } catch (error) {
      if ((error as { code?: string }).code === 'CHECKPOINT_MISSING') return undefined;
      throw error;
    }
  }

  keepsRemoved(): ReturnType<EveryFile['keepsRemoved']> {
    return this.place.keepsRemoved();
  }

  close(): ReturnType<Place['close']> {
    return this.place.close();
  }
}
