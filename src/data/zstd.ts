/**
 * zstd: Node has it from 22.15 on. Older ones use the package fzstd, an optional peer, which is several times
 * slower.
 */
import { type Duplex, Transform, type TransformCallback } from 'node:stream';
import * as zlib from 'node:zlib';
import { describe } from '../common/errors.js';
import { importOptional } from '../common/optional.js';
import { type Decompressor, hasChecksum, ZstdFrames } from './zstd-frames.js';

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
  const { decompress, Decompress } = await importFzstd();
  return (input, size) => {
    const content = new Uint8Array(size);
    if (!hasChecksum(input)) return decompress(input, content);
    let at = 0;
    const reader = new ZstdFrames(Decompress, (piece) => {
      content.set(piece, at);
      at += piece.length;
    });
    reader.push(input);
    reader.end();
    return content.subarray(0, at);
  };
}

const importFzstd = () => importOptional<typeof import('fzstd')>('fzstd');

class Unzstd extends Transform {
  private readonly frames: ZstdFrames;

  constructor(make: Decompressor) {
    super();
    // Copied, because the decompressor uses its memory again.
    this.frames = new ZstdFrames(make, (piece) => this.push(Buffer.from(piece)));
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    attempt(() => this.frames.push(chunk), done);
  }

  override _flush(done: TransformCallback): void {
    attempt(() => this.frames.end(), done);
  }
}

function attempt(work: () => void, done: TransformCallback): void {
  try {
    work();
    done();
  } catch (error) {
    done(new Error(`zstd: ${describe(error)}`));
  }
}
