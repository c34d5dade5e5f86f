/**
 * zstd: Node has it from 22.15 on. Older ones use the package fzstd, an optional peer, which is several times
 * slower.
 */
import { type Duplex, Transform, type TransformCallback } from 'node:stream';
import * as zlib from 'node:zlib';
import { describe } from '../common/errors.js';
import { importOptional } from '../common/optional.js';

interface Native {
  createZstdDecompress?: (options: { chunkSize: number }) => Duplex;
  zstdDecompressSync?: (input: Uint8Array, options: { maxOutputLength: number }) => Uint8Array;
}

/** A stream that decompresses. @throws DEPENDENCY_MISSING where neither Node nor fzstd can */
export async function createUnzstd(chunkSize: number): Promise<Duplex> {
  const native = (zlib as Native).createZstdDecompress;
  return native ? native({ chunkSize }) : new Unzstd((await importFzstd()).Decompress);
}

/**
 * Makes a function that decompresses to `size` bytes at once. @throws DEPENDENCY_MISSING where neither Node
 * nor fzstd can
 */
export async function unzstd(): Promise<(input: Uint8Array, size: number) => Uint8Array> {
  const native = (zlib as Native).zstdDecompressSync;
  if (native) return (input, size) => native(input, { maxOutputLength: Math.max(1, size) });
  const { decompress } = await importFzstd();
  return (input, size) => decompress(input, new Uint8Array(size));
}

const importFzstd = () => importOptional<typeof import('fzstd')>('fzstd');

type Decompress = typeof import('fzstd')['Decompress'];

class Unzstd extends Transform {
  private readonly inner: InstanceType<Decompress>;

  constructor(make: Decompress) {
    super();
    // Copied, because the decompressor uses its memory again.
    this.inner = new make((chunk) => this.push(Buffer.from(chunk)));
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.attempt(chunk, false, done);
  }

  override _flush(done: TransformCallback): void {
    this.attempt(new Uint8Array(0), true, done);
  }

  private attempt(chunk: Uint8Array, last: boolean, done: TransformCallback): void {
    try {
      this.inner.push(chunk, last);
      done();
    } catch (error) {
      done(new Error(`zstd: ${describe(error)}`));
    }
  }
}
