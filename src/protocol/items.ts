/**
 * The lists of shards in headers of requests and of their answers: packed u32 words, so that a message for
 * many shards has one value in its header and no object per shard.
 *
 *   push      (g, m, cseq, bytes) per shard: the sections lie in the message's part, one after the other
 *   pull      (g, m, bytes)
 *   pushAck   (g, m, cseq)
 *   rows      (item, bytes): index into the items of the pull, and bytes of its rows in the part
 *
 * Words are little-endian. A `cseq` takes two, the lower one first. The list may begin at any address.
 */
import { KintsugiError } from '../common/errors.js';

/** Words of each field. */
const LAYOUTS = {
  push: [1, 1, 2, 1],
  pull: [1, 1, 1],
  pushAck: [1, 1, 2],
  rows: [1, 1],
} as const;

export type ItemKind = keyof typeof LAYOUTS;

const WIDTHS: Readonly<Record<ItemKind, number>> = { push: 5, pull: 3, pushAck: 4, rows: 2 };
const WORD_BYTES = 4;
const WORD = 2 ** 32;
/** Bound of the higher words of numbers, so that they are safe integers. */
const HIGHEST = 2 ** 21;
/** Bound of members, so that (g, m) is one number: `shardKey`. */
const MEMBERS = 2 ** 16;
const START_WORDS = 64;

/** True if a value can be the index of a member. */
export function isMember(m: unknown): boolean {
  return Number.isSafeInteger(m) && (m as number) >= 0 && (m as number) < MEMBERS;
}

/** One number for (group, member). */
export function shardKey(g: number, m: number): number {
  return g * MEMBERS + m;
}

/** A packed list for reading. Bytes from outside passed `areItems` before. */
export class Items {
  readonly length: number;
  private readonly view: DataView;
  private readonly stride: number;

  constructor(kind: ItemKind, bytes: Uint8Array) {
    this.stride = WIDTHS[kind] * WORD_BYTES;
    this.length = bytes.byteLength / this.stride;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Word `word` of item `index`. */
  word(index: number, word: number): number {
    return this.view.getUint32(index * this.stride + word * WORD_BYTES, true);
  }

  /** The number in words `word` and `word + 1`. */
  number(index: number, word: number): number {
    return this.word(index, word + 1) * WORD + this.word(index, word);
  }

  /**
   * Checks that the sections or rows of all items, whose sizes are in word `word`, fill `bytes` exactly.
   * @throws BAD_FRAME
   */
  checkSizes(word: number, bytes: number): void {
    let sum = 0;
    for (let i = 0; i < this.length; i++) sum += this.word(i, word);
    if (sum !== bytes)
      throw new KintsugiError('BAD_FRAME', `items of ${sum} bytes with a payload of ${bytes}`);
  }
}

/** A packed list for writing, which grows. */
export class ItemList {
  length = 0;
  private readonly width: number;
  private words = new Uint32Array(START_WORDS);

  constructor(kind: ItemKind) {
    this.width = WIDTHS[kind];
  }

  private grow(): number {
    const at = this.length++ * this.width;
    if (at + this.width > this.words.length) {
      const more = new Uint32Array(2 * this.words.length);
      more.set(this.words);
      this.words = more;
    }
    return at;
  }

  /** Adds (g, m, bytes) of a pull, or (item, bytes) of rows. */
  add(first: number, second: number, third = 0): void {
    const at = this.grow();
    this.words[at] = first;
    this.words[at + 1] = second;
    if (this.width > 2) this.words[at + 2] = third;
  }

  /** Adds (g, m, cseq, bytes) of a push, or (g, m, cseq) of its acknowledgement. */
  addNumbered(g: number, m: number, cseq: number, bytes = 0): void {
    const at = this.grow();
    this.words[at] = g;
    this.words[at + 1] = m;
    this.words[at + 2] = cseq;
    this.words[at + 3] = cseq / WORD;
    if (this.width > 4) this.words[at + 4] = bytes;
  }

  bytes(): Uint8Array {
    return new Uint8Array(this.words.buffer, 0, this.length * this.width * WORD_BYTES);
  }
}

/** True if a field of a header is a packed list: whole items, safe numbers, possible members. */
export function areItems(kind: ItemKind, value: unknown): boolean {
  if (!(value instanceof Uint8Array) || value.byteLength % (WIDTHS[kind] * WORD_BYTES) !== 0) return false;
  if (kind === 'rows') return true;
  const items = new Items(kind, value);
  for (let i = 0; i < items.length; i++) {
    if (items.word(i, 1) >= MEMBERS) return false;
    if (kind !== 'pull' && items.word(i, 3) >= HIGHEST) return false;
  }
  return true;
}

/** Packs a few items; for tests and tools, one array of fields per item. */
export function packItems(kind: ItemKind, list: readonly (readonly number[])[]): Uint8Array {
  const items = new ItemList(kind);
  for (const [first = 0, second = 0, third = 0, fourth = 0] of list) {
    if (kind === 'push' || kind === 'pushAck') items.addNumbered(first, second, third, fourth);
    else items.add(first, second, third);
  }
  return items.bytes();
}

/** The fields of every item: what `packItems` was given. */
export function unpackItems(kind: ItemKind, bytes: Uint8Array): number[][] {
  const items = new Items(kind, bytes);
  return Array.from({ length: items.length }, (_, index) => {
    let at = 0;
    return LAYOUTS[kind].map((words) => {
      const value = words === 2 ? items.number(index, at) : items.word(index, at);
      at += words;
      return value;
    });
  });
}
