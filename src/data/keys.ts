/**
 * Keys of values of sparse columns, as pairs of u32: a BigInt per value would be most of the work of reading.
 *
 * In a table that the schema names, an integer and a hash are their own keys, so that others can look rows up
 * without knowing the schema. In the common table every column has keys of its own: the hash of the value and
 * of the column's name. Real values have bit 63 clear. A missing value has it set, so it is no real value.
 */
import { KintsugiError } from '../errors.js';
import type { SparseColumn } from './schema.js';

const HIGH_BIT = 0x8000_0000;
const MAX_SAFE_DIGITS = 15;
const MAX_HEX_DIGITS = 16;
/** Values of the digits, by their codes; -1: none */
const HEX = Int8Array.from({ length: 128 }, (_, code) => {
  const digit = Number.parseInt(String.fromCharCode(code), 16);
  return Number.isNaN(digit) ? -1 : digit;
});
const MAX_INTEGER = 2n ** 63n - 1n;
const MAX_INDEX = BigInt(Number.MAX_SAFE_INTEGER);

/** What a value of a kind of key must be. */
export const KEY_EXPECTED = {
  integer: 'an integer from 0 to 2^63 - 1',
  hash: 'up to 16 hexadecimal digits',
  string: 'text',
} as const;

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
    for (let i = 0; i < written; i++) this.absorb(scratch[i]!);
    this.absorb(written ^ HIGH_BIT);
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
  /** Where the hash begins; a missing value is this number with the highest bit. */
  readonly seed: number;

  constructor(private readonly column: SparseColumn) {
    this.seed = column.shared ? 0 : seedOf(column.name);
  }

  /** Of no value, in a column that has one. */
  missing(): void {
    this.low = this.seed;
    this.high = HIGH_BIT;
  }

  /** Whether this is a value; a number is the same value as its text. */
  make(value: unknown): boolean {
    const { key, shared } = this.column;
    if (key === 'integer' && isIndex(value)) {
      this.whole(Number(value));
      return this.finish(shared);
    }
    const text = textOf(value);
    if (text === undefined) return false;
    if (key === 'string') {
      hash.begin(this.seed);
      hash.text(text);
      hash.end(this);
      return true;
    }
    return (key === 'integer' ? this.integer(text) : this.hexadecimal(text)) && this.finish(shared);
  }

  /** Of a number that is its own key in a shared table. */
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
    if (!/^\d{1,19}$/.test(text)) return false;
    if (text.length <= MAX_SAFE_DIGITS) {
      this.whole(Number(text));
      return true;
    }
    const value = BigInt(text);
    this.low = Number(value & 0xffff_ffffn);
    this.high = Number(value >> 32n);
    return value <= MAX_INTEGER;
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
    this.high = (high & ~HIGH_BIT) >>> 0;
    return true;
  }
}

/** A number from 0 on that a double holds exactly. */
function isIndex(value: unknown): boolean {
  if (typeof value === 'number') return Number.isSafeInteger(value) && value >= 0;
  return typeof value === 'bigint' && value >= 0n && value <= MAX_INDEX;
}

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  if (typeof value === 'bigint' || typeof value === 'boolean') return String(value);
  // What a double does not hold exactly may be another number than the one that was meant.
  if (typeof value !== 'number' || !Number.isFinite(value)) return undefined;
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? undefined : String(value);
}

/**
 * A column is what keys need of it: a kind that there is, or keys would be other ones than were meant.
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
    const text = `column "${column.name}" must be ${KEY_EXPECTED[column.key]}, not ${String(value)}`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  return (BigInt(maker.high) << 32n) | BigInt(maker.low);
}
