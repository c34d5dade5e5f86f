/** Payload parts as typed arrays, and typed arrays as payload parts. */

/** A view of u32 words on a payload part; copies only when the part is not aligned. */
export function words(part: Uint8Array | undefined): Uint32Array {
  if (!part) return new Uint32Array(0);
  const count = part.byteLength >>> 2;
  if (part.byteOffset % 4 === 0) return new Uint32Array(part.buffer, part.byteOffset, count);
  const copy = part.slice(0, count * 4);
  return new Uint32Array(copy.buffer, 0, count);
}

/** The bytes of a typed array, as a payload part. */
export function bytes(array: Uint32Array | BigUint64Array | Float32Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/** A copy, also of a Buffer, whose own `slice` is a view. */
export const copied = (part: Uint8Array): Uint8Array<ArrayBuffer> => new Uint8Array(part);

/** A copy of the 64-bit numbers of a payload part; none where it has none. */
export const longs = (part: Uint8Array = new Uint8Array(0)): BigUint64Array =>
  new BigUint64Array(copied(part).buffer);

/** Some bytes of a larger array. */
export interface Span {
  memory: Uint8Array;
  start: number;
  size: number;
}

/** All spans in one array: a view where they lie one after the other already, else a copy. */
export function joined(spans: readonly Span[]): Uint8Array {
  const [first] = spans;
  if (!first) return new Uint8Array(0);
  let size = 0;
  let together = true;
  const { buffer } = first.memory;
  const from = first.memory.byteOffset + first.start;
  for (const { memory, start, size: more } of spans) {
    together &&= more === 0 || (memory.buffer === buffer && memory.byteOffset + start === from + size);
    size += more;
  }
  if (together) return new Uint8Array(buffer, from, size);
  const copy = new Uint8Array(size);
  let at = 0;
  for (const { memory, start, size: more } of spans) {
    copy.set(memory.subarray(start, start + more), at);
    at += more;
  }
  return copy;
}

export function areEqual(a: Uint8Array, b: Uint8Array): boolean {
  return a.byteLength === b.byteLength && a.every((byte, i) => byte === b[i]);
}
