/**
 * Compressions of whole files. The last ending of a name says which one; the ending before it says the format
 * (formats.ts).
 */
import type { Duplex } from 'node:stream';
import { createGunzip, createGzip } from 'node:zlib';
import { createUnzstd } from './zstd.js';

export interface Packing {
  /** The first bytes of such a file. */
  magic: readonly number[];
  /** A stream that decompresses. `chunkBytes`: size of the chunks that it gives. */
  unpack(chunkBytes: number): Duplex | Promise<Duplex>;
  /** Zeros may be behind the end of what is compressed. */
  padded?: true;
  /** A stream that compresses, for files that this program writes. */
  pack?(): Duplex;
}

const PACKINGS: Readonly<Record<string, Packing>> = {
  '.gz': {
    magic: [0x1f, 0x8b],
    padded: true,
    unpack: (chunkSize) => createGunzip({ chunkSize }),
    pack: () => createGzip({ level: 4 }),
  },
  '.zst': { magic: [0x28, 0xb5, 0x2f, 0xfd], unpack: createUnzstd },
};

/** All endings, as help and messages list them. */
export const PACKED_ENDINGS = Object.keys(PACKINGS).join(', ');

/** The compression that a name says; `name` is the rest of it. A plain file has no `ending`. */
export function packing(file: string): { name: string; ending?: string; packing?: Packing } {
  const found = Object.entries(PACKINGS).find(([ending]) => file.endsWith(ending));
  if (!found) return { name: file };
  const [ending, packing] = found;
  return { name: file.slice(0, -ending.length), ending, packing };
}

/** True for a compressed file: it can only be read from its start. */
export function isPacked(file: string): boolean {
  return packing(file).ending !== undefined;
}

/** The compression that the first bytes of a file say, whatever its name; undefined: none that is known. */
export function packingOf(head: Uint8Array): Packing | undefined {
  return Object.values(PACKINGS).find(({ magic }) => magic.every((byte, i) => head[i] === byte));
}

/**
 * Bytes that a decompressor has taken. One of Node ends where no further part begins, and drops the rest.
 * Undefined: it takes all, or fails.
 */
export function takenBy(unpack: Duplex): number | undefined {
  return (unpack as Duplex & { bytesWritten?: number }).bytesWritten;
}
