/**
 * Frames of zstd (RFC 8878) by the package fzstd, which decompresses and compares no checksums. Here each
 * frame is found by the headers of its blocks, decompressed by itself, and its content is compared.
 */
import { loadNative } from '../engine/native.js';
import { XXH64_STATE_WORDS } from '../engine/native-data.js';

/** A class of fzstd: what one frame holds, in pieces that are valid during the call. */
export type Decompressor = new (
  onContent: (piece: Uint8Array) => void,
) => {
  push(bytes: Uint8Array, last: boolean): void;
};

const MAGIC = 0xfd2fb528;
/** Readers pass over frames of this kind. The lower four bits may be any. */
const SKIPPABLE = 0x184d2a50;
/** Flags of the descriptor. Its lowest two bits and its highest two choose the sizes of fields. */
const CHECKSUM_FLAG = 4;
const SINGLE_FLAG = 32;
const DICTIONARY_BYTES = [0, 1, 2, 4] as const;
const SIZE_BYTES = [0, 2, 4, 8] as const;
const CHECKSUM_BYTES = 4;
const BLOCK_HEADER_BYTES = 3;
/** Types of blocks: one byte that is repeated, and one that does not exist. */
const REPEATED = 1;
const RESERVED = 3;
const NOTHING = new Uint8Array(0);

/** True for input whose first frame has a checksum. */
export const hasChecksum = (input: Uint8Array): boolean => ((input[4] ?? 0) & CHECKSUM_FLAG) !== 0;

/** The content of one frame, and its checksum. */
class ZstdFrame {
  private readonly state = new BigUint64Array(XXH64_STATE_WORDS);
  private readonly inner: InstanceType<Decompressor>;
  private bytes = 0;

  constructor(make: Decompressor, onContent: (piece: Uint8Array) => void) {
    const native = loadNative();
    this.inner = new make((piece) => {
      native.xxh64(this.state, piece);
      this.bytes += piece.length;
      onContent(piece);
    });
  }

  add(bytes: Uint8Array): void {
    this.inner.push(bytes, false);
  }

  /** All of it has come. `size` of its content, and `checksum`, its last bytes, where it has them. */
  end(size: number | undefined, checksum: Buffer | undefined): void {
    this.inner.push(checksum ?? NOTHING, true);
    if (size !== undefined && size !== this.bytes)
      throw new Error(`a frame has ${this.bytes} bytes of content, and says ${size}`);
    if (checksum && checksum.readUInt32LE() !== loadNative().xxh64(this.state, NOTHING))
      throw new Error('the checksum differs: bytes of the file are not as they were written');
  }
}

/** How the next bytes are taken: gathered and handed over together, or passed on as they come. */
type Wish = { gather: number } | { pass: number };

export class ZstdFrames {
  private readonly steps: Generator<Wish, void, Buffer>;
  private wish: Wish;
  private gathered = Buffer.alloc(0);
  /** The frame that is coming; undefined between frames. */
  private frame: ZstdFrame | undefined;
  private any = false;

  constructor(
    private readonly make: Decompressor,
    private readonly onContent: (piece: Uint8Array) => void,
  ) {
    this.steps = this.walk();
    this.wish = this.steps.next().value as Wish;
  }

  /** @throws Error for what is no frame, or has another checksum */
  push(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) {
      if ('gather' in this.wish) {
        const piece = bytes.subarray(at, at + this.wish.gather - this.gathered.length);
        at += piece.length;
        this.gathered = Buffer.concat([this.gathered, piece]);
        if (this.gathered.length < this.wish.gather) return;
        this.step(this.gathered);
      } else {
        const piece = bytes.subarray(at, at + this.wish.pass);
        at += piece.length;
        this.frame?.add(piece);
        this.wish.pass -= piece.length;
        if (this.wish.pass === 0) this.step(this.gathered);
      }
    }
  }

  /** No more bytes come. @throws Error in the middle of a frame, and for none at all */
  end(): void {
    const between = 'gather' in this.wish && !this.frame && this.gathered.length === 0;
    if (!between || !this.any) throw new Error('unexpected end of file');
  }

  private step(gathered: Buffer): void {
    this.gathered = Buffer.alloc(0);
    // A step never passes on nothing.
    do this.wish = this.steps.next(gathered).value as Wish;
    while ('pass' in this.wish && this.wish.pass === 0);
  }

  private *walk(): Generator<Wish, void, Buffer> {
    for (;;) {
      const magic = yield { gather: 4 };
      const kind = magic.readUInt32LE();
      this.any = true;
      if ((kind & ~0xf) >>> 0 === SKIPPABLE) yield { pass: (yield { gather: 4 }).readUInt32LE() };
      else if (kind === MAGIC) yield* this.one(magic);
      else throw new Error('something is behind the end of what is compressed, or it is no zstd');
    }
  }

  private *one(magic: Buffer): Generator<Wish, void, Buffer> {
    const descriptor = yield { gather: 1 };
    const frame = new ZstdFrame(this.make, this.onContent);
    this.frame = frame;
    const flags = descriptor[0]!;
    const isSingle = (flags & SINGLE_FLAG) !== 0;
    const before = (isSingle ? 0 : 1) + DICTIONARY_BYTES[flags & 3]!;
    const sizeBytes = isSingle && flags >> 6 === 0 ? 1 : SIZE_BYTES[flags >> 6]!;
    const rest = before + sizeBytes > 0 ? yield { gather: before + sizeBytes } : Buffer.alloc(0);
    frame.add(Buffer.concat([magic, descriptor, rest]));
    const size = sizeBytes === 0 ? undefined : sizeOf(rest.subarray(before));
    for (let last = false; !last; ) {
      const header = yield { gather: BLOCK_HEADER_BYTES };
      frame.add(header);
      const word = header.readUIntLE(0, BLOCK_HEADER_BYTES);
      last = (word & 1) === 1;
      const type = (word >> 1) & 3;
      if (type === RESERVED) throw new Error('invalid block type');
      yield { pass: type === REPEATED ? 1 : word >> 3 };
    }
    const checksum = flags & CHECKSUM_FLAG ? yield { gather: CHECKSUM_BYTES } : undefined;
    frame.end(size, checksum);
    this.frame = undefined;
  }
}

/** The size of the content in the header of a frame. */
function sizeOf(bytes: Buffer): number {
  // RFC 8878: two bytes hold what is beyond 255.
  if (bytes.length === 2) return bytes.readUInt16LE() + 256;
  return bytes.length === 8 ? Number(bytes.readBigUInt64LE()) : bytes.readUIntLE(0, bytes.length);
}
