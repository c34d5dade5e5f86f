import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { SafetensorsReader, SafetensorsWriter } from '../../src/tools/safetensors.js';
import { temporaryDirectory } from './support.js';

async function sample(): Promise<string> {
  const path = join(temporaryDirectory(), 'sample.safetensors');
  const writer = await SafetensorsWriter.create(
    path,
    [
      { name: 'keys', dtype: 'U64', shape: [3] },
      { name: 'values', dtype: 'F32', shape: [3, 2] },
      { name: 'none', dtype: 'F32', shape: [0, 2] },
    ],
    { table: 'ü' },
  );
  // Out of order, as a reader of rows would never notice.
  await writer.write('values', 8, Float32Array.of(3, 4, 5, 6));
  await writer.write('keys', 0, BigUint64Array.of(1n, 2n, 3n));
  await writer.write('values', 0, Float32Array.of(1, 2));
  await writer.finish();
  return path;
}

/** A file with this header and so many bytes of data. */
function craft(header: unknown, data: number): string {
  const text = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const path = join(temporaryDirectory(), 'crafted.safetensors');
  writeFileSync(path, Buffer.concat([length, text, Buffer.alloc(data)]));
  return path;
}

describe('a file', () => {
  test('reads back what was written, in pieces', async () => {
    const reader = await SafetensorsReader.open(await sample());
    const { tensors, metadata } = reader.layout;
    expect(metadata).toEqual({ table: 'ü' });
    expect([...tensors.keys()].sort()).toEqual(['keys', 'none', 'values']);
    const values = tensors.get('values')!;
    expect(values.shape).toEqual([3, 2]);
    expect([...new Float32Array(await reader.read(values, 0, 24))]).toEqual([1, 2, 3, 4, 5, 6]);
    expect([...new Float32Array(await reader.read(values, 8, 8))]).toEqual([3, 4]);
    expect([...new BigUint64Array(await reader.read(tensors.get('keys')!, 0, 24))]).toEqual([1n, 2n, 3n]);
    await expect(reader.read(values, 20, 8)).rejects.toMatchObject({ code: 'INTERNAL' });
    await reader.close();
  });

  test('has the layout of the format: length, padded JSON, data to the last byte', async () => {
    const bytes = readFileSync(await sample());
    const length = Number(bytes.readBigUInt64LE());
    expect(length % 8).toBe(0);
    const header = JSON.parse(bytes.subarray(8, 8 + length).toString());
    expect(header).toEqual({
      __metadata__: { table: 'ü' },
      keys: { dtype: 'U64', shape: [3], data_offsets: [0, 24] },
      values: { dtype: 'F32', shape: [3, 2], data_offsets: [24, 48] },
      none: { dtype: 'F32', shape: [0, 2], data_offsets: [48, 48] },
    });
    expect(bytes.length).toBe(8 + length + 48);
    expect(bytes.readFloatLE(8 + length + 24)).toBe(1);
  });

  test('refuses to write outside a tensor', async () => {
    const path = join(temporaryDirectory(), 'x.safetensors');
    const writer = await SafetensorsWriter.create(path, [{ name: 'a', dtype: 'F32', shape: [2] }]);
    await expect(writer.write('a', 4, new Float32Array(2))).rejects.toMatchObject({ code: 'INTERNAL' });
    await expect(writer.write('b', 0, new Float32Array(1))).rejects.toMatchObject({ code: 'INTERNAL' });
    await writer.abandon();
  });
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
  ])('%s', async (_, header, data, message) => {
    const opening = SafetensorsReader.open(craft(header, data));
    await expect(opening).rejects.toMatchObject({
      code: 'BAD_CHECKPOINT',
      message: expect.stringMatching(message),
    });
    await expect(opening).rejects.toThrow(/^crafted\.safetensors: /);
  });

  test('every truncation of a good file', async () => {
    const path = await sample();
    const bytes = readFileSync(path);
    for (let length = 0; length < bytes.length; length++) {
      writeFileSync(path, bytes.subarray(0, length));
      await expect(SafetensorsReader.open(path)).rejects.toMatchObject({ code: 'BAD_CHECKPOINT' });
    }
    writeFileSync(path, bytes);
    await (await SafetensorsReader.open(path)).close();
  });

  test('a header length beyond the file, or absurd', async () => {
    const path = await sample();
    const bytes = readFileSync(path);
    for (const length of [BigInt(bytes.length), 2n ** 63n]) {
      bytes.writeBigUInt64LE(length);
      writeFileSync(path, bytes);
      await expect(SafetensorsReader.open(path)).rejects.toMatchObject({ code: 'BAD_CHECKPOINT' });
    }
  });

  test('a file that does not exist', async () => {
    const path = join(temporaryDirectory(), 'nothing.safetensors');
    await expect(SafetensorsReader.open(path)).rejects.toThrow('nothing.safetensors: the file is missing');
  });
});
