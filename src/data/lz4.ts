/** Blocks of LZ4, as the compression LZ4_RAW of parquet has them. */

/** Fewest bytes that a match copies */
const LEAST_MATCH = 4;
/** A length of four bits with this value goes on in the next bytes. */
const LONG = 15;
/** A byte with this value is not the last one of a length. */
const GOES_ON = 255;

/** A block, where it is read. */
class Lz4Block {
  private at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  get left(): number {
    return this.bytes.length - this.at;
  }

  byte(): number {
    if (this.left === 0) throw new Error('LZ4: the block ends too early');
    return this.bytes[this.at++]!;
  }

  length(short: number): number {
    let length = short;
    for (let more = short === LONG ? GOES_ON : 0; more === GOES_ON; length += more) more = this.byte();
    return length;
  }

  take(length: number): Uint8Array {
    if (length > this.left) throw new Error('LZ4: the block ends too early');
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
}

/** Decompresses a block to `size` bytes. @throws if it is damaged */
export function unlz4(input: Uint8Array, size: number): Uint8Array {
  const block = new Lz4Block(input);
  const output = new Uint8Array(size);
  let end = 0;
  const mustFit = (length: number) => {
    if (length > size - end) throw new Error(`LZ4: the block has more than ${size} bytes`);
  };
  while (block.left > 0) {
    const token = block.byte();
    const literals = block.length(token >> 4);
    mustFit(literals);
    output.set(block.take(literals), end);
    end += literals;
    // The last sequence has no match.
    if (block.left === 0) break;
    const back = block.byte() + 256 * block.byte();
    const length = LEAST_MATCH + block.length(token & LONG);
    if (back === 0 || back > end) throw new Error('LZ4: a match begins before the block');
    mustFit(length);
    if (back >= length) output.copyWithin(end, end - back, end - back + length);
    // A match may go on into what it writes.
    else for (let i = 0; i < length; i++) output[end + i] = output[end + i - back]!;
    end += length;
  }
  if (end !== size) throw new Error(`LZ4: the block has ${end} bytes, not ${size}`);
  return output;
}
