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
