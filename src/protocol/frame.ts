/**
 * The frame: one or more messages in one WebSocket message, and the only place that knows how its bytes lie.
 *
 *   [u32 length of the envelope, little-endian][msgpack envelope][zeros to a multiple of 8]
 *   [part][zeros to a multiple of 8][part] ...
 *
 * The envelope is an array `[header, length of part 0, length of part 1, ..., next header, lengths of its
 * parts, ...]`: the lengths travel beside the headers, so that no name inside them is reserved. Every part
 * starts at a multiple of 8 from the start of the frame; the frame ends with the last byte of the last part
 * (or of the header, when there are no parts). Parts are raw little-endian arrays that the engine reads in
 * place, so decoding makes views and copies no payload.
 *
 * Frames come from outside. The msgpack bytes are walked once before the library sees them: only plain values
 * pass (no extensions, so none of msgpackr's record definitions, which compile code, or its references), no
 * length is believed before it was compared with the bytes that are there, and nesting is bounded. Any
 * problem is thrown as BAD_FRAME.
 */
import { type Options, Packr, Unpackr } from 'msgpackr';
import { describe, KintsugiError } from '../common/errors.js';
import { limitText } from './limits.js';
import { toWire } from './pack.js';

/** Largest frame, unless a link was given another limit. The sender throws LIMIT, the receiver BAD_FRAME. */
export const MAX_FRAME_BYTES = 64 * 1024 * 1024;
/** Largest envelope: bounds what headers can grow into once decoded. */
export const MAX_HEADER_BYTES = 8 * 1024 * 1024;
/** Most parts in one frame: a request carries one per shard of the node. */
export const MAX_PARTS = 16_384;
/** Deepest nesting of maps and arrays in a header. */
export const MAX_HEADER_DEPTH = 32;

/** A message that goes into a frame. */
export type Outgoing = readonly [header: object, parts: readonly Uint8Array[]];

/**
 * A message of a decoded frame. `parts` are views into the bytes that were given; `header` holds no views.
 */
export interface Frame {
  header: Record<string, unknown>;
  parts: Uint8Array[];
}

export interface EncodeOptions {
  maxBytes?: number;
  /** Memory for the frame; need not be zeroed. The default is a new array. */
  allocate?: (bytes: number) => Uint8Array;
  /**
   * Called when all parts are in one buffer, as far apart as in the frame. Returns the frame of `bytes` in
   * that buffer, with `first` at `start`, so that no part is copied; or undefined. The bytes before and
   * between the parts are overwritten.
   */
  around?: (first: Uint8Array, start: number, bytes: number) => Uint8Array | undefined;
}

// 'auto' (a number where it is exact, else a bigint) exists in the library but is missing from its types.
const OPTIONS = { useRecords: false, mapsAsObjects: true, copyBuffers: true, int64AsType: 'auto' };
const packr = new Packr(OPTIONS as unknown as Options);
const unpackr = new Unpackr(OPTIONS as unknown as Options);
/** The library returns its buffer, with the place of what it wrote, instead of a view. */
const REUSE_BUFFER_MODE = 512;
type Packed = Uint8Array & { start: number; end: number };
/** Most bytes for which a copy byte by byte is faster than one through a view. */
const SHORT_BYTES = 160;
/** Short envelopes are read here: what the library needs for an array is made once. */
const short = new Uint8Array(SHORT_BYTES);

const PREFIX_BYTES = 4;
const align8 = (n: number): number => Math.ceil(n / 8) * 8;

/** A frame of one message: see `encodeMessages`. */
export function encodeFrame(
  header: object,
  parts: readonly Uint8Array[] = [],
  options: EncodeOptions = {},
): Uint8Array {
  return encodeMessages([[header, parts]], options);
}

/**
 * One frame of at least one message: headers and their parts, which are copied. A header is a plain object
 * with a string `t`, of numbers, bigints (64 bits), strings, booleans, null, Uint8Array, arrays and plain
 * objects.
 * @throws LIMIT when a limit is exceeded, BAD_ARGUMENT when a header has no `t`: errors of the sender, unlike
 * BAD_FRAME.
 */
export function encodeMessages(messages: readonly Outgoing[], options: EncodeOptions = {}): Uint8Array {
  const maxBytes = options.maxBytes ?? MAX_FRAME_BYTES;
  const envelope: unknown[] = [];
  for (const [header, parts] of messages) {
    if (typeof (header as { t?: unknown }).t !== 'string')
      throw new KintsugiError('BAD_ARGUMENT', 'the header has no string "t"');
    envelope.push(toWire(header));
    for (const part of parts) envelope.push(part.byteLength);
  }
  const partCount = envelope.length - messages.length;
  if (partCount > MAX_PARTS) throw limit(limitText(`${partCount} parts`, 'maxParts', MAX_PARTS));
  const packed = packr.pack(envelope, REUSE_BUFFER_MODE) as unknown as Packed;
  const headerBytes = packed.end - packed.start;
  if (headerBytes > MAX_HEADER_BYTES) {
    throw limit(limitText(`a header of ${headerBytes} bytes`, 'maxHeaderBytes', MAX_HEADER_BYTES));
  }
  const headerEnd = PREFIX_BYTES + headerBytes;
  const all = messages.length === 1 ? messages[0]![1] : messages.flatMap(([, parts]) => parts);
  const [first] = all;
  const start = align8(headerEnd);
  let total = headerEnd;
  let together = first !== undefined;
  for (const part of all) {
    total = align8(total);
    together &&= part.buffer === first?.buffer && part.byteOffset - first.byteOffset === total - start;
    total += part.byteLength;
  }
  if (total > maxBytes) throw limit(limitText(`a frame of ${total} bytes`, 'maxFrameBytes', maxBytes));

  const around = together && first ? options.around?.(first, start, total) : undefined;
  const frame = around ?? options.allocate?.(total) ?? new Uint8Array(total);
  frame[0] = headerBytes & 255;
  frame[1] = (headerBytes >>> 8) & 255;
  frame[2] = (headerBytes >>> 16) & 255;
  frame[3] = headerBytes >>> 24;
  if (headerBytes > SHORT_BYTES) frame.set(packed.subarray(packed.start, packed.end), PREFIX_BYTES);
  else for (let i = 0; i < headerBytes; i++) frame[PREFIX_BYTES + i] = packed[packed.start + i]!;
  let at = headerEnd;
  for (const part of all) {
    for (const end = align8(at); at < end; at++) frame[at] = 0;
    if (!around) frame.set(part, at);
    at += part.byteLength;
  }
  return frame;
}

/** The message of a frame that has one. @throws BAD_FRAME: see `decodeMessages` */
export function decodeFrame(bytes: Uint8Array, maxBytes = MAX_FRAME_BYTES): Frame {
  const [frame, ...more] = decodeMessages(bytes, maxBytes);
  if (!frame || more.length > 0) throw bad('one message is expected');
  return frame;
}

/**
 * The messages of a frame in order: their headers, and views of their parts.
 * @throws BAD_FRAME, and nothing else, for any bytes that `encodeMessages` could not have made.
 */
export function decodeMessages(bytes: Uint8Array, maxBytes = MAX_FRAME_BYTES): Frame[] {
  if (bytes.byteLength > maxBytes)
    throw bad(`a frame of ${bytes.byteLength} bytes, the limit is ${maxBytes}`);
  if (bytes.byteLength < PREFIX_BYTES) throw bad(`${bytes.byteLength} bytes are no frame`);
  const headerBytes = (bytes[0]! | (bytes[1]! << 8) | (bytes[2]! << 16) | (bytes[3]! << 24)) >>> 0;
  const headerEnd = PREFIX_BYTES + headerBytes;
  if (headerBytes > MAX_HEADER_BYTES || headerEnd > bytes.byteLength) {
    throw bad(`a header of ${headerBytes} bytes in a frame of ${bytes.byteLength}`);
  }
  const packed = bytes.subarray(PREFIX_BYTES, headerEnd);
  checkMsgpack(packed);
  let envelope: unknown;
  try {
    envelope = headerBytes <= SHORT_BYTES ? unpackShort(packed) : unpackr.unpack(packed);
  } catch (error) {
    throw bad(`the header cannot be read: ${describe(error)}`, error);
  }
  if (!Array.isArray(envelope)) throw bad('the header is not in an envelope');
  return openEnvelope(bytes, headerEnd, envelope);
}

/** Decodes the envelope. The values in it are copies of the bytes. */
function unpackShort(packed: Uint8Array): unknown {
  const bytes = packed.byteLength;
  for (let i = 0; i < bytes; i++) short[i] = packed[i]!;
  return unpackr.unpack(short, bytes);
}

/** Headers, each before the lengths of its parts. Parts and their padding must fill the frame exactly. */
function openEnvelope(bytes: Uint8Array, headerEnd: number, envelope: readonly unknown[]): Frame[] {
  const frames: Frame[] = [];
  let frame: Frame | undefined;
  let at = headerEnd;
  let count = 0;
  for (const entry of envelope) {
    if (!frame || typeof entry === 'object') {
      frame = { header: checkHeader(entry), parts: [] };
      frames.push(frame);
      continue;
    }
    const start = align8(at);
    if (count === MAX_PARTS) throw bad(`more than ${MAX_PARTS} parts`);
    if (!Number.isSafeInteger(entry) || (entry as number) < 0) throw bad(`part ${count} has no length`);
    if (start + (entry as number) > bytes.byteLength) throw bad(`part ${count} goes beyond the frame`);
    frame.parts.push(new Uint8Array(bytes.buffer, bytes.byteOffset + start, entry as number));
    at = start + (entry as number);
    count++;
  }
  if (at !== bytes.byteLength) throw bad(`${bytes.byteLength - at} bytes after the last part`);
  if (frames.length === 0) throw bad('the envelope is empty');
  return frames;
}

function checkHeader(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || value instanceof Uint8Array)
    throw bad('the header is not an object');
  const header = value as Record<string, unknown>;
  if (!Object.hasOwn(header, 't') || typeof header.t !== 'string') throw bad('the header has no string "t"');
  return header;
}

/** Bytes after a token of a fixed value; 255 where the token is none. */
const FIXED = new Uint8Array(256).fill(255);
for (const [token, bytes] of [
  [0xc0, 0], // nil
  [0xc2, 0], // false
  [0xc3, 0], // true
  [0xca, 4], // float 32
  [0xcb, 8], // float 64
  [0xcc, 1], // unsigned integers of 8, 16, 32, 64 bits
  [0xcd, 2],
  [0xce, 4],
  [0xcf, 8],
  [0xd0, 1], // signed integers
  [0xd1, 2],
  [0xd2, 4],
  [0xd3, 8],
] as const)
  FIXED[token] = bytes;
type FrameKind = 'bytes' | 'array' | 'map';
/** Bytes of the length that follows a token, and what it counts. */
const COUNTED: (readonly [lengthBytes: number, kind: FrameKind] | undefined)[] = new Array(256).fill(
  undefined,
);
for (const [token, lengthBytes, kind] of [
  [0xc4, 1, 'bytes'], // binary
  [0xc5, 2, 'bytes'],
  [0xc6, 4, 'bytes'],
  [0xd9, 1, 'bytes'], // strings
  [0xda, 2, 'bytes'],
  [0xdb, 4, 'bytes'],
  [0xdc, 2, 'array'],
  [0xdd, 4, 'array'],
  [0xde, 2, 'map'],
  [0xdf, 4, 'map'],
] as const)
  COUNTED[token] = [lengthBytes, kind];

const isString = (token: number): boolean =>
  (token >= 0xa0 && token < 0xc0) || (token >= 0xd9 && token <= 0xdb);

/** One entry per open container: how many values it still needs, and whether keys alternate with values. */
const left = new Float64Array(MAX_HEADER_DEPTH + 2);
const keyed = new Uint8Array(MAX_HEADER_DEPTH + 2);

/**
 * Throws BAD_FRAME unless the bytes are exactly one msgpack value of plain kinds, with strings as the keys of
 * maps.
 */
function checkMsgpack(bytes: Uint8Array): void {
  const end = bytes.byteLength;
  let at = 0;
  let top = 0;
  left[0] = 1;
  keyed[0] = 0;
  while (top >= 0) {
    const needed = left[top]!;
    if (needed === 0) {
      top--;
      continue;
    }
    if (at >= end) throw bad('the header is truncated');
    const token = bytes[at++]!;
    if (keyed[top] === 1 && needed % 2 === 0 && !isString(token))
      throw bad('a key in the header is no string');
    left[top] = needed - 1;
    if (token < 0x80 || token >= 0xe0) continue; // small integers
    let kind: FrameKind = 'bytes';
    let count: number;
    if (token < 0xc0) {
      kind = token < 0x90 ? 'map' : token < 0xa0 ? 'array' : 'bytes';
      count = kind === 'bytes' ? token & 31 : token & 15;
    } else if (token === 0xd4 && bytes[at] === 0) {
      count = 2; // msgpackr's `undefined`
    } else if (FIXED[token] !== 255) {
      count = FIXED[token]!;
    } else {
      const counted = COUNTED[token];
      if (counted === undefined) throw bad(`the header has a value of kind 0x${token.toString(16)}`);
      if (counted[0] > end - at) throw bad('the header is truncated');
      kind = counted[1];
      count = 0;
      for (let i = 0; i < counted[0]; i++) count = count * 256 + bytes[at++]!;
    }
    if (kind === 'map') count *= 2;
    // Every value takes at least one byte, so this bounds containers as well.
    if (count > end - at) throw bad('the header is truncated');
    if (kind === 'bytes') {
      at += count;
    } else {
      if (top >= MAX_HEADER_DEPTH) throw bad(`the header is nested deeper than ${MAX_HEADER_DEPTH}`);
      top++;
      left[top] = count;
      keyed[top] = kind === 'map' ? 1 : 0;
    }
  }
  if (at !== end) throw bad('bytes after the header');
}

const limit = (message: string): KintsugiError => new KintsugiError('LIMIT', message);

function bad(message: string, cause?: unknown): KintsugiError {
  return new KintsugiError('BAD_FRAME', message, cause === undefined ? undefined : { cause });
}
