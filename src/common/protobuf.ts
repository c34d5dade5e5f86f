/**
 * Protocol Buffers, as far as it is written here: a message is the concatenation of its fields, and a field
 * that is a message is `delimited`. (https://protobuf.dev/programming-guides/encoding)
 */

/** An integer of up to 64 bits; a negative one takes ten bytes, as int32 and int64 have it. */
function varint(value: number | bigint): Buffer {
  const bytes: number[] = [];
  let left = BigInt.asUintN(64, BigInt(value));
  for (; left >= 128n; left >>= 7n) bytes.push(Number(left & 127n) | 128);
  bytes.push(Number(left));
  return Buffer.from(bytes);
}

const key = (field: number, wire: number): Buffer => varint((field << 3) | wire);

export const integer = (field: number, value: number): Buffer =>
  Buffer.concat([key(field, 0), varint(value)]);

export function float64(field: number, value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleLE(value);
  return Buffer.concat([key(field, 1), bytes]);
}

export function float32(field: number, value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return Buffer.concat([key(field, 5), bytes]);
}

/** Bytes, or a message of these fields. */
export function delimited(field: number, content: Uint8Array | readonly Uint8Array[]): Buffer {
  const parts = content instanceof Uint8Array ? [content] : content;
  const bytes = parts.reduce((sum, part) => sum + part.byteLength, 0);
  return Buffer.concat([key(field, 2), varint(bytes), ...parts]);
}

export const text = (field: number, value: string): Buffer => delimited(field, Buffer.from(value));

/** Repeated integers, packed; of none, nothing. */
export const integers = (field: number, values: readonly number[]): Buffer =>
  values.length === 0 ? Buffer.alloc(0) : delimited(field, values.map(varint));
