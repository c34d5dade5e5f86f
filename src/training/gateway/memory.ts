/**
 * Where keys and rows of requests lie: in memory that the program shares with the gateway, or in the bytes of
 * a frame. A place is a byte offset; every one is checked here. Rows are not looked at by anybody here, so a
 * program that writes while its request is under way harms only its own rows.
 */
import { KintsugiError } from '../../common/errors.js';
import { loadNative } from '../../engine/native.js';

/** Keys and rows by their byte offsets. */
export interface Memory {
  keys(offset: number, count: number): BigUint64Array;
  floats(offset: number, count: number): Float32Array;
  counts(offset: number, count: number): Uint32Array;
  /**
   * A function that tells the program that its keys and rows were read: it writes a word that is not 0. The
   * place is checked now, because a request that is under way cannot be refused any more.
   */
  marker(offset: number): () => void;
}

/** `fd` of process `pid`, a sealed memfd; or a file at `path` on a volume that is memory. */
export interface MemoryPlace {
  pid?: number;
  fd?: number;
  path?: string;
  bytes: number;
  /** The bytes that the program has written at `nonceAt`, in hexadecimal. */
  nonce?: string;
  nonceAt?: number;
}

function check(offset: number, count: number, size: number, bytes: number): void {
  const fits =
    Number.isSafeInteger(offset) &&
    Number.isSafeInteger(count) &&
    offset >= 0 &&
    count >= 0 &&
    offset % size === 0 &&
    count * size <= bytes - offset;
  if (fits) return;
  const text = `${count} x ${size} bytes at ${offset} do not lie in memory of ${bytes} bytes`;
  throw new KintsugiError('BAD_ARGUMENT', text);
}

/** Keys and rows in some bytes, which begin where numbers may lie. */
class Views {
  constructor(protected readonly bytes: Uint8Array) {}

  keys(offset: number, count: number): BigUint64Array {
    check(offset, count, 8, this.bytes.length);
    return new BigUint64Array(this.bytes.buffer, this.bytes.byteOffset + offset, count);
  }

  floats(offset: number, count: number): Float32Array {
    check(offset, count, 4, this.bytes.length);
    return new Float32Array(this.bytes.buffer, this.bytes.byteOffset + offset, count);
  }

  counts(offset: number, count: number): Uint32Array {
    check(offset, count, 4, this.bytes.length);
    return new Uint32Array(this.bytes.buffer, this.bytes.byteOffset + offset, count);
  }
}

export class SharedMemory extends Views implements Memory {
  /** @throws UNREACHABLE, BAD_ARGUMENT, MEMORY_LIMIT, DEPENDENCY_MISSING */
  constructor({ pid, fd, path, bytes, nonce, nonceAt = 0 }: MemoryPlace) {
    const file = path ?? `/proc/${pid}/fd/${fd}`;
    super(new Uint8Array(loadNative().mapShared(file, bytes, path === undefined)));
    if (nonce === undefined) return;
    // A process of that number may be another one in this container.
    check(nonceAt, nonce.length / 2, 1, bytes);
    const found = Buffer.from(this.bytes.buffer, nonceAt, nonce.length / 2).toString('hex');
    if (found === nonce) return;
    this.close();
    throw new KintsugiError(
      'BAD_ARGUMENT',
      'the program does not share its memory with this gateway: it runs on another machine',
    );
  }

  /** Bytes for what the program is to find there. */
  room(offset: number, count: number): Uint8Array {
    check(offset, count, 1, this.bytes.length);
    return new Uint8Array(this.bytes.buffer, offset, count);
  }

  marker(offset: number): () => void {
    check(offset, 1, 4, this.bytes.length);
    const word = new Int32Array(this.bytes.buffer, offset, 1);
    // Ordered behind all reads before.
    return () => void Atomics.store(word, 0, 1);
  }

  /** Views of it are empty from now on, and what is under way finds them so. */
  close(): void {
    if (this.bytes.length > 0) loadNative().unmapShared(this.bytes.buffer as ArrayBuffer);
  }
}

/** The bytes behind a message; copied where they do not lie as numbers must. */
export class SharedFrameMemory extends Views implements Memory {
  constructor(payload: Uint8Array) {
    super(payload.byteOffset % 8 === 0 ? payload : Uint8Array.from(payload));
  }

  /** The program keeps nothing for it. */
  marker(): () => void {
    return () => {};
  }
}
