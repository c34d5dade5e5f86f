/**
 * Where checkpoints are kept: a directory, or an object store. A place holds files under names; a file
 * appears as a whole or not at all, and is never changed.
 */
import { describe, KintsugiError } from '../../common/errors.js';

/** A file that `put` has written. */
export interface StoredObject {
  bytes: number;
  /** SHA-256 of the content, in hexadecimal. */
  sha256: string;
}

export interface PutOptions {
  /**
   * Fails with CHECKPOINT_TAKEN when the name is taken by a file with another content. A file with the same
   * content is as good: so a write whose answer was lost can be repeated.
   */
  ifAbsent?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

export interface GetOptions {
  /** Bytes from..to of the file, `to` excluded. */
  from?: number | undefined;
  to?: number | undefined;
  /** Throws BAD_CHECKPOINT, before it takes memory, when it would have to return more bytes. */
  atMost?: number | undefined;
  /** The version that `list` gave. Throws BAD_DATA when the file was written again since then. */
  version?: string | undefined;
  signal?: AbortSignal | undefined;
}

/** A file of a place. */
export interface StoredFile {
  name: string;
  bytes: number;
  /** Another one after the file was written again; undefined where the place does not know. */
  version?: string | undefined;
}

/**
 * All operations throw PLACE_FAILED when the place cannot be reached, read or written, after attempts that
 * make sense there, and ABORTED. Names are relative, with `/` between their parts, of letters, digits, `.`,
 * `_` and `-`.
 */
export interface Place {
  readonly url: string;
  /**
   * Writes a file, whose content is the parts one after the other. It is durable when this resolves. The
   * parts must not change until then; at most about half a MiB of them is handled in one turn of the event
   * loop. @throws CHECKPOINT_TAKEN
   */
  put(name: string, parts: readonly Uint8Array[], options?: PutOptions): Promise<StoredObject>;
  /**
   * Reads a file, or a part of it; the memory is its own, and starts at a multiple of 8. @throws
   * CHECKPOINT_MISSING when there is no such file, BAD_CHECKPOINT
   */
  get(name: string, options?: GetOptions): Promise<Uint8Array<ArrayBuffer>>;
  /** Files whose names begin so, in no particular order. */
  list(prefix: string): AsyncIterable<StoredFile>;
  /** Removes files, durably; those that do not exist are no error. */
  remove(names: readonly string[]): Promise<void>;
  close(): Promise<void>;
}

/** The most that `get` returns by default. */
export const MAX_GET_BYTES = 256 * 1024 * 1024;

const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]*(?:\/[A-Za-z0-9_][A-Za-z0-9._-]*)*$/;

/** Names are made by this program, or have been validated with their manifest. @throws INTERNAL */
export function checkName(name: string): void {
  if (!NAME.test(name)) throw new KintsugiError('INTERNAL', `"${name}" is not the name of a file of a place`);
}

export function refuseAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new KintsugiError('ABORTED', 'the operation was aborted');
}

export function placeFailed(url: string, name: string, error: unknown): KintsugiError {
  const text = `${url}${name === '' ? '' : `: ${name}`}: ${describe(error)}`;
  return new KintsugiError('PLACE_FAILED', text, { cause: error });
}

export function noSuchFile(name: string): KintsugiError {
  return new KintsugiError('CHECKPOINT_MISSING', `${name}: there is no such file`);
}

export function nameTaken(name: string): KintsugiError {
  return new KintsugiError('CHECKPOINT_TAKEN', `${name}: another writer has written this file`);
}

export function tooLarge(name: string, bytes: number, atMost: number): KintsugiError {
  return new KintsugiError('BAD_CHECKPOINT', `${name}: ${bytes} bytes, at most ${atMost} are expected`);
}
