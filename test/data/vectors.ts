/** The same pretrained embeddings as files of every format, written by the tests themselves. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { type Dtype, encodeHeader } from '../../src/stores/checkpoint/safetensors.js';
import { zstdStored } from './zstd.js';

export interface Vectors {
  keys: readonly (number | bigint | string)[];
  /** The row of each key; numbers that single precision holds */
  rows: readonly (readonly number[])[];
}

/** Values that every float type of files holds. */
export function vectors(count: number, dim: number, keyOf = (row: number): number | string => row): Vectors {
  const indices = Array.from({ length: count }, (_, row) => row);
  const value = (row: number, index: number) => ((row * 7 + index * 3) % 33) / 16 - 1;
  return {
    keys: indices.map(keyOf),
    rows: indices.map((row) => Array.from({ length: dim }, (_, index) => value(row, index))),
  };
}

/** Elements of each type, in their bits. */
const ENCODE: Partial<Record<Dtype, (values: readonly (number | bigint)[]) => ArrayBufferView>> = {
  F32: (values) => Float32Array.from(values as number[]),
  F64: (values) => Float64Array.from(values as number[]),
  BF16: (values) =>
    Uint16Array.from(new Uint32Array(Float32Array.from(values as number[]).buffer), (word) => word >>> 16),
  F16: (values) => Uint16Array.from(values as number[], halfBits),
  I64: (values) => BigInt64Array.from(values.map(BigInt)),
  U64: (values) => BigUint64Array.from(values.map(BigInt)),
  I32: (values) => Int32Array.from(values.map(Number)),
};

/** For multiples of 1/16 below 2, and what is no number. */
function halfBits(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  if (value === 0) return 0;
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  const fraction = Math.abs(value) / 2 ** exponent - 1;
  return (value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | Math.round(fraction * 1024);
}

const bytesOf = (dtype: Dtype, values: readonly (number | bigint)[]): Buffer => {
  const view = ENCODE[dtype]!(values);
  return Buffer.from(view.buffer, view.byteOffset, view.byteLength);
};

export interface ArrayToWrite {
  name: string;
  dtype: Dtype;
  shape: number[];
  values: readonly (number | bigint)[];
}

export function safetensors(arrays: readonly ArrayToWrite[]): Buffer {
  const { header } = encodeHeader(arrays, { format: 'pt' });
  return Buffer.concat([header, ...arrays.map(({ dtype, values }) => bytesOf(dtype, values))]);
}

const NUMPY: Partial<Record<Dtype, string>> = { F16: '<f2', F32: '<f4', F64: '<f8', I64: '<i8', I32: '<i4' };

/** As `numpy.save` writes it. */
export function npy({ dtype, shape, values }: Omit<ArrayToWrite, 'name'>, header?: string): Buffer {
  const dims = shape.length === 1 ? `${shape[0]},` : shape.join(', ');
  const text = header ?? `{'descr': '${NUMPY[dtype]}', 'fortran_order': False, 'shape': (${dims}), }`;
  // The header is padded to a multiple of 64 bytes.
  const padded = `${text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11)}\n`;
  const lead = Buffer.from([
    0x93,
    0x4e,
    0x55,
    0x4d,
    0x50,
    0x59,
    1,
    0,
    padded.length & 255,
    padded.length >> 8,
  ]);
  return Buffer.concat([lead, Buffer.from(padded, 'latin1'), bytesOf(dtype, values)]);
}

function delimited({ keys, rows }: Vectors, delimiter: string): string {
  const dim = rows[0]!.length;
  const header = ['key', ...Array.from({ length: dim }, (_, index) => `v${index}`)].join(delimiter);
  return [header, ...rows.map((row, at) => [keys[at], ...row].join(delimiter)), ''].join('\n');
}

/** A list of values in a column. */
export function parquet({ keys, rows }: Vectors): Buffer {
  const text = typeof keys[0] === 'string';
  const schema = [
    { name: 'root', num_children: 2 },
    { name: 'key', ...(text ? { type: 'BYTE_ARRAY', converted_type: 'UTF8' } : { type: 'INT64' }) },
    { name: 'vector', repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    { name: 'element', repetition_type: 'OPTIONAL', type: 'FLOAT' },
  ];
  const columnData = [
    { name: 'key', data: text ? [...keys] : keys.map(BigInt) },
    { name: 'vector', data: rows.map((row) => [...row]) },
  ];
  const options = { columnData, schema, rowGroupSize: 100 } as Parameters<typeof parquetWriteBuffer>[0];
  return Buffer.from(parquetWriteBuffer(options));
}

const flat = ({ rows }: Vectors) => rows.flat();
const shapeOf = ({ rows }: Vectors) => [rows.length, rows[0]!.length];

const FORMATS = {
  'a.safetensors': (all: Vectors) =>
    safetensors([
      { name: 'ids', dtype: 'I64', shape: [all.keys.length], values: all.keys as number[] },
      { name: 'embedding.weight', dtype: 'F32', shape: shapeOf(all), values: flat(all) },
    ]),
  'a.npy': (all: Vectors) => npy({ dtype: 'F32', shape: shapeOf(all), values: flat(all) }),
  'a.parquet': parquet,
  'a.csv': (all: Vectors) => delimited(all, ','),
  'a.tsv.gz': (all: Vectors) => gzipSync(delimited(all, '\t')),
  'a.csv.zst': (all: Vectors) => zstdStored(Buffer.from(delimited(all, ','))),
} satisfies Record<string, (all: Vectors) => Buffer | string>;

export type VectorFormat = keyof typeof FORMATS;
export const VECTOR_FORMATS = Object.keys(FORMATS) as VectorFormat[];

/** Writes a file of this name, and for npy its keys. Returns the flags that name the keys. */
export function writeVectors(directory: string, name: VectorFormat, all: Vectors) {
  const file = join(directory, name);
  writeFileSync(file, FORMATS[name](all));
  if (name === 'a.safetensors') return { file, keys: 'ids' };
  if (name !== 'a.npy') return { file, keys: undefined };
  const keys = join(directory, 'keys.npy');
  writeFileSync(keys, npy({ dtype: 'I64', shape: [all.keys.length], values: all.keys as number[] }));
  return { file, keys };
}
