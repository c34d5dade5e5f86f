/**
 * Keys of values of sparse columns, as pairs of u32: a BigInt per value would be most of the work of reading.
 *
 * In a table that the schema names, an integer and a hash are their own keys, so that others can look rows up
 * without knowing the schema. In the common table every column has keys of its own: the hash of the value and
 * of the column's name, with bit 63 clear. The key of a missing value has bit 63 set and no value has it.
 */
import { isUtf8 } from 'node:buffer';
import { KintsugiError, valueText } from '../common/errors.js';
import type { SparseColumn } from './schema.js';

const HIGH_BIT = 0x8000_0000;
const MAX_SAFE_DIGITS = 15;
const MAX_HEX_DIGITS = 16;
/** Values of the digits, by their codes; -1: none */
const HEX = Int8Array.from({ length: 128 }, (_, code) => {
  const digit = Number.parseInt(String.fromCharCode(code), 16);
  return Number.isNaN(digit) ? -1 : digit;
});
/** A text with it comes from a file with a hole, or is no text. */
const NUL = '\0';
const MAX_INTEGER = 2n ** 64n - 1n;
const MIN_INTEGER = -(2n ** 63n);
const MAX_INDEX = BigInt(Number.MAX_SAFE_INTEGER);

/** Values that each kind of key takes, in the words of messages. */
const KEY_EXPECTED = {
  integer: 'an integer from -2^63 + 1 to 2^64 - 2, and neither -1 nor 2^63',
  hash: 'up to 16 hexadecimal digits',
  hash64: 'up to 16 hexadecimal digits, and neither 8000000000000000 nor ffffffffffffffff',
  string: 'text',
} as const;

/** The same, of values that are numbers and not text. */
const NUMBER_EXPECTED: Partial<Record<SparseColumn['key'], string>> = {
  hash: 'an integer from 0 to 2^64 - 1, or text of hexadecimal digits',
  hash64: 'an integer from 0 to 2^64 - 2 and not 2^63, or text of hexadecimal digits',
};

const NUMBERED_EXPECTED = {
  hex8: 'up to 8 hexadecimal digits',
  digits9: 'up to 9 digits',
  fnv: KEY_EXPECTED.string,
} as const;

const FNV_BEGIN = 0xcbf29ce484222325n;
const FNV_STEP = 0x100000001b3n;
const FNV_NUMBER = 0x9e3779b97f4a7c15n;

/** Words of messages for a value that has no key: they say what it must be. */
export function expectedOf({ key, multi }: SparseColumn, value: unknown): string {
  const expected = { ...KEY_EXPECTED, ...NUMBERED_EXPECTED }[key];
  if (!multi && isList(value)) return `one value ("multi": true takes a list), ${expected}`;
  if (!isTextKey(key)) return (isNumber(value) && NUMBER_EXPECTED[key]) || expected;
  if (value instanceof Uint8Array) return `${KEY_EXPECTED.string} in UTF-8 ("encoding": "utf8")`;
  if (value instanceof Date) return `${KEY_EXPECTED.string}, and a time is none: store it as text or integer`;
  if (typeof value !== 'string') return KEY_EXPECTED.string;
  if (value.includes(NUL)) return `${KEY_EXPECTED.string} without NUL`;
  return isWellFormed(value) ? KEY_EXPECTED.string : 'text without half a pair of surrogates';
}

const isNumber = (value: unknown) => typeof value === 'number' || typeof value === 'bigint';

function isTextKey(key: SparseColumn['key']): boolean {
  return key === 'string' || key === 'fnv';
}

/** Bytes are one value. */
export function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof Uint8Array));
}

/** The last key that was made: low and high half. */
export interface Key {
  low: number;
  high: number;
}

const encoder = new TextEncoder();
let scratch = new Uint8Array(256);

/** State of a hash of 64 bits. A step is a bijection of the state, so nothing is lost on the way. */
class Hash {
  private first = 0;
  private second = 0;

  begin(seed: number): void {
    this.first = seed | 0;
    this.second = 0x5bd1e995;
  }

  absorb(word: number): void {
    const mixed = Math.imul(this.first ^ word, 0x9e3779b1);
    this.first = (((mixed << 13) | (mixed >>> 19)) + this.second) | 0;
    const other = Math.imul(this.second ^ this.first, 0x85ebca6b);
    this.second = (other << 17) | (other >>> 15);
  }

  text(text: string): void {
    if (text.length * 3 > scratch.length) scratch = new Uint8Array(text.length * 6);
    const { written } = encoder.encodeInto(text, scratch);
    this.bytes(scratch, written);
  }

  bytes(bytes: Uint8Array, length: number): void {
    for (let i = 0; i < length; i++) this.absorb(bytes[i]!);
    this.absorb(length ^ HIGH_BIT);
  }

  end(into: Key): void {
    for (let round = 0; round < 4; round++) this.absorb(0x2545f491 + round);
    into.low = this.first >>> 0;
    into.high = (this.second & ~HIGH_BIT) >>> 0;
  }
}

const hash = new Hash();

function seedOf(name: string): number {
  const key = { low: 0, high: 0 };
  hash.begin(0);
  hash.text(name);
  hash.end(key);
  return key.low;
}

/** Makes the keys of one column. */
export class KeyMaker implements Key {
  low = 0;
  high = 0;
  /** Where the hash begins; a missing value is this number with the highest bit. Or the column's `number` */
  readonly seed: number;

  constructor(private readonly column: SparseColumn) {
    this.seed = column.number ?? (column.shared ? 0 : seedOf(column.name));
  }

  /** The key of a missing value, in a single-valued column. */
  missing(): void {
    if (this.column.key === 'fnv') return this.fnv(new Uint8Array(0));
    if (this.column.number !== undefined) return this.numbered(HIGH_BIT, 0);
    this.low = this.seed;
    this.high = HIGH_BIT;
  }

  /**
   * Whether this is a value. A number is the same value as its text, but for a hash: there text has
   * hexadecimal digits, and a number is the hash itself. Text is the same value as its bytes in UTF-8.
   */
  make(value: unknown): boolean {
    const { key, shared, encoding } = this.column;
    const isHash = key === 'hash' || key === 'hash64';
    if ((key === 'integer' || isHash) && isIndex(value)) {
      this.whole(Number(value));
      return this.finish(shared);
    }
    if (isTextKey(key) && value instanceof Uint8Array) {
      if (encoding === 'utf8' && !isUtf8(value)) return false;
      if (key === 'fnv') this.fnv(value);
      else this.bytes(value);
      return true;
    }
    const text = textOf(value);
    if (text === undefined) return false;
    if (isTextKey(key)) {
      // Half of a pair of surrogates would become the same bytes as any other one.
      if (text.includes(NUL) || !isWellFormed(text)) return false;
      if (key === 'fnv') this.fnv(encoder.encode(text));
      else this.text(text);
      return true;
    }
    if (this.column.number !== undefined) {
      const isHex = key === 'hex8';
      if (!(isHex ? /^[\da-f]{1,8}$/i : /^\d{1,9}$/).test(text)) return false;
      this.numbered(0, Number.parseInt(text, isHex ? 16 : 10));
      return true;
    }
    const isWhole = isNumber(value);
    if (isHash && isWhole && text.startsWith('-')) return false;
    if (!(key === 'integer' || isWhole ? this.integer(text) : this.hexadecimal(text))) return false;
    if (key === 'hash') this.high = (this.high & ~HIGH_BIT) >>> 0;
    return !this.isReserved && this.finish(shared);
  }

  private text(text: string): void {
    hash.begin(this.seed);
    hash.text(text);
    hash.end(this);
  }

  private bytes(bytes: Uint8Array): void {
    hash.begin(this.seed);
    hash.bytes(bytes, bytes.length);
    hash.end(this);
  }

  private numbered(high: number, low: number): void {
    this.low = low >>> 0;
    this.high = (high | this.seed) >>> 0;
  }

  private fnv(bytes: Uint8Array): void {
    let key = FNV_BEGIN;
    for (const byte of bytes) key = ((key ^ BigInt(byte)) * FNV_STEP) & MAX_INTEGER;
    key ^= ((BigInt(this.seed) << 32n) * FNV_NUMBER) & MAX_INTEGER;
    if (key === MAX_INTEGER) key = 0n;
    this.low = Number(key & 0xffff_ffffn);
    this.high = Number(key >> 32n);
  }

  /** Keys that no value has: that of a missing value, and 2^64 - 1, which tables reserve. */
  private get isReserved(): boolean {
    const { low, high } = this;
    return (low === 0 && high === HIGH_BIT >>> 0) || (low === 0xffff_ffff && high === 0xffff_ffff);
  }

  /** In a shared table a number is its own key, else the key is its hash. */
  private finish(shared: boolean): boolean {
    if (shared) return true;
    hash.begin(this.seed);
    hash.absorb(this.low);
    hash.absorb(this.high);
    hash.end(this);
    return true;
  }

  private whole(value: number): void {
    this.low = value >>> 0;
    this.high = Math.floor(value / 2 ** 32);
  }

  private integer(text: string): boolean {
    if (!/^-?\d{1,20}$/.test(text)) return false;
    if (text.length <= MAX_SAFE_DIGITS && text[0] !== '-') {
      this.whole(Number(text));
      return true;
    }
    const value = BigInt(text);
    if (value < MIN_INTEGER || value > MAX_INTEGER) return false;
    const key = BigInt.asUintN(64, value);
    this.low = Number(key & 0xffff_ffffn);
    this.high = Number(key >> 32n);
    return true;
  }

  /** Digit by digit: a pattern and a parser of numbers take three times as long. */
  private hexadecimal(text: string): boolean {
    const { length } = text;
    if (length < 1 || length > MAX_HEX_DIGITS) return false;
    let [low, high] = [0, 0];
    for (let index = 0; index < length; index++) {
      const digit = HEX[text.charCodeAt(index)] ?? -1;
      if (digit < 0) return false;
      high = (high << 4) | (low >>> 28);
      low = (low << 4) | digit;
    }
    this.low = low >>> 0;
    this.high = high >>> 0;
    return true;
  }
}

/** No half of a pair of surrogates stands alone. */
export function isWellFormed(text: string): boolean {
  return !/\p{Surrogate}/u.test(text);
}

/** Bytes that are UTF-8, as text. */
export function textOfBytes(bytes: Uint8Array): string | undefined {
  return isUtf8(bytes)
    ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8')
    : undefined;
}

/** A number from 0 on that a double holds exactly. */
function isIndex(value: unknown): boolean {
  if (typeof value === 'number') return Number.isSafeInteger(value) && value >= 0;
  return typeof value === 'bigint' && value >= 0n && value <= MAX_INDEX;
}

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  if (value instanceof Uint8Array) return textOfBytes(value);
  if (typeof value === 'bigint' || typeof value === 'boolean') return String(value);
  // A number that a double does not hold exactly may not be the one that was written.
  if (typeof value !== 'number' || !Number.isFinite(value)) return undefined;
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? undefined : String(value);
}

/**
 * Checks the fields of a column that keys depend on. A wrong one would give other keys than were meant.
 * @throws BAD_ARGUMENT
 */
export function checkColumn(where: string, given: SparseColumn): void {
  const { name, key, shared, table } = (given ?? {}) as Partial<SparseColumn>;
  const wrong = (what: string) => new KintsugiError('BAD_ARGUMENT', `${where}: ${what}`);
  if (typeof key !== 'string' || !Object.hasOwn(KEY_EXPECTED, key))
    throw wrong(`key must be one of ${Object.keys(KEY_EXPECTED).join(', ')}`);
  if (typeof name !== 'string' || typeof table !== 'string') throw wrong('name and table must be strings');
  if (typeof shared !== 'boolean') throw wrong('shared must be true or false');
}

/**
 * The key that a value of a column has in its table; of null, that of a missing value. @throws BAD_ARGUMENT
 * for what is no value of the column
 */
export function keyOf(column: SparseColumn, value: unknown): bigint {
  checkColumn('keyOf: column', column);
  const maker = new KeyMaker(column);
  if (value === null || value === undefined || value === '') maker.missing();
  else if (!maker.make(value)) {
    const text = `column "${column.name}" must be ${expectedOf(column, value)}, not ${valueText(value)}`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  return (BigInt(maker.high) << 32n) | BigInt(maker.low);
}
