import { describe, expect, test } from 'vitest';
import { decodeHeader, encodeHeader } from '../../../src/stores/checkpoint/safetensors.js';

const SPECS = [
  { name: 'keys', dtype: 'U64', shape: [3] },
  { name: 'values', dtype: 'F32', shape: [3, 2] },
  { name: 'none', dtype: 'F32', shape: [0, 2] },
] as const;

test('a header has the layout of the format: length, padded JSON, offsets of the data', () => {
  const { header, layout } = encodeHeader(SPECS, { table: 'ü' });
  const length = Number(new DataView(header.buffer).getBigUint64(0, true));
  expect(length % 8).toBe(0);
  expect(header.length).toBe(8 + length);
  expect(JSON.parse(new TextDecoder().decode(header.subarray(8)))).toEqual({
    __metadata__: { table: 'ü' },
    keys: { dtype: 'U64', shape: [3], data_offsets: [0, 24] },
    values: { dtype: 'F32', shape: [3, 2], data_offsets: [24, 48] },
    none: { dtype: 'F32', shape: [0, 2], data_offsets: [48, 48] },
  });
  expect(layout.fileBytes).toBe(8 + length + 48);
  expect(decodeHeader(header.subarray(8), layout.fileBytes, 'file')).toEqual(layout);
});

describe('damage is refused with the name of the file', () => {
  const tensor = { dtype: 'F32', shape: [2], data_offsets: [0, 8] };
  test.each<[string, unknown, number, RegExp]>([
    ['not JSON', '{"a":', 0, /not JSON/],
    ['not an object', '[1]', 0, /not JSON/],
    ['metadata that is not a string', { __metadata__: { a: 1 } }, 0, /metadata/],
    ['an unknown type', { a: { ...tensor, dtype: 'F33' } }, 8, /type/],
    ['a type from the prototype', { a: { ...tensor, dtype: 'toString' } }, 8, /type/],
    ['a negative size', { a: { ...tensor, shape: [-2] } }, 8, /shape/],
    ['an impossible size', { a: { ...tensor, shape: [2 ** 40, 2 ** 40] } }, 8, /needs/],
    ['a range that does not fit the shape', { a: { ...tensor, data_offsets: [0, 4] } }, 4, /8/],
    ['a gap at the start', { a: { ...tensor, data_offsets: [4, 12] } }, 12, /starts at 4/],
    ['overlapping tensors', { a: tensor, b: { ...tensor, data_offsets: [4, 12] } }, 12, /starts at 4/],
    ['data that ends too early', { a: tensor }, 7, /header says/],
    ['data that goes on', { a: tensor }, 9, /header says/],
    ['null for a tensor', { a: null }, 0, /type/],
  ])('%s', (_, header, data, message) => {
    const text = new TextEncoder().encode(typeof header === 'string' ? header : JSON.stringify(header));
    const decode = () => decodeHeader(text, 8 + text.length + data, 'crafted.safetensors');
    expect(decode).toThrow(message);
    expect(decode).toThrow(/^crafted\.safetensors: /);
    expect(decode).toThrow(expect.objectContaining({ code: 'BAD_CHECKPOINT' }));
  });
});
