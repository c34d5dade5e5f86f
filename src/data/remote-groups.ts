/**
 * A row group of a parquet file in an object store, as a file of this machine that DuckDB reads: as large as
 * the object, with its metadata, the needed columns of the group, and holes. The file loses its name before
 * anything is in it, so nothing of it is left behind, however the process ends.
 */
import { randomUUID } from 'node:crypto';
import { closeSync, ftruncateSync, openSync, unlinkSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MAX_METADATA_BYTES } from './parquet-pages.js';

/** Bytes of an object. */
export interface RemoteObject {
  byteLength: number;
  slice(from: number, to: number): Promise<ArrayBuffer> | ArrayBuffer;
}

export interface BytesRange {
  from: number;
  to: number;
}

/** Most bytes of the needed columns of a group, which are on the disk. */
const MAX_GROUP_BYTES = 2 ** 30;
const PIECE_BYTES = 2 ** 23;
/** Requests under way, each with a piece in memory. */
const REQUESTS = 4;
/** Bytes between two columns that are fetched rather than asked for around. */
const GAP_BYTES = 2 ** 16;
const MAGIC = Buffer.from('PAR1');

const abandoned = new FinalizationRegistry((fd: number) => closeSync(fd));

/** Pieces of what is to be fetched, in the order of the object. */
function piecesOf(ranges: readonly BytesRange[]): BytesRange[] {
  const whole: BytesRange[] = [];
  for (const { from, to } of ranges.toSorted((a, b) => a.from - b.from)) {
    const last = whole.at(-1);
    if (last && from - last.to <= GAP_BYTES) last.to = Math.max(last.to, to);
    else whole.push({ from, to });
  }
  return whole.flatMap(({ from, to }) =>
    Array.from({ length: Math.ceil((to - from) / PIECE_BYTES) }, (_, index) => {
      const at = from + index * PIECE_BYTES;
      return { from: at, to: Math.min(to, at + PIECE_BYTES) };
    }),
  );
}

function writeAll(fd: number, bytes: Uint8Array, at: number): void {
  for (let done = 0; done < bytes.length; )
    done += writeSync(fd, bytes, done, bytes.length - done, at + done);
}

/** A file without a name. Undefined: the system has no way to open it again, or no room. */
function nameless(bytes: number): number | undefined {
  if (process.platform !== 'linux') return undefined;
  const file = join(tmpdir(), `kintsugi-${randomUUID()}`);
  let fd: number | undefined;
  try {
    fd = openSync(file, 'wx+', 0o600);
    unlinkSync(file);
    ftruncateSync(fd, bytes);
    return fd;
  } catch {
    if (fd !== undefined) closeSync(fd);
    return undefined;
  }
}

/** Closes its file when nobody uses it. */
export class RemoteGroup {
  readonly path: string;
  private users = 1;

  private constructor(private readonly fd: number) {
    this.path = `/proc/self/fd/${fd}`;
    abandoned.register(this, fd, this);
  }

  /**
   * Fetches ranges of an object, and its metadata. Undefined: they are too large, or this machine has no room
   * for them. The caller is the first user. @throws what `slice` throws
   */
  static async open(
    object: RemoteObject,
    metadataBytes: number,
    ranges: readonly BytesRange[],
  ): Promise<RemoteGroup | undefined> {
    const { byteLength } = object;
    const isInside = ranges.every(({ from, to }) => from >= 0 && from <= to && to <= byteLength);
    const bytes = ranges.reduce((sum, { from, to }) => sum + to - from, 0);
    if (!isInside || !(bytes <= MAX_GROUP_BYTES) || !(metadataBytes <= MAX_METADATA_BYTES)) return undefined;
    const fd = nameless(byteLength);
    if (fd === undefined) return undefined;
    const group = new RemoteGroup(fd);
    let hasRoom = true;
    const pieces = piecesOf([...ranges, { from: byteLength - metadataBytes, to: byteLength }]).values();
    const fetch = async () => {
      for (const { from, to } of pieces) {
        const piece = new Uint8Array(await object.slice(from, to));
        if (!hasRoom) return;
        try {
          writeAll(fd, piece, from);
        } catch {
          hasRoom = false;
        }
      }
    };
    const fetched = await Promise.allSettled(Array.from({ length: REQUESTS }, fetch));
    const failed = fetched.find((each) => each.status === 'rejected');
    if (!failed && hasRoom) writeAll(fd, MAGIC, 0);
    else group.leave();
    if (failed) throw failed.reason;
    return hasRoom ? group : undefined;
  }

  use(): this {
    this.users += 1;
    return this;
  }

  leave(): void {
    this.users -= 1;
    if (this.users > 0) return;
    abandoned.unregister(this);
    closeSync(this.fd);
  }
}
