/**
 * Arrays in files: tensors of the safetensors format, and npy, the format of numpy. Elements are
 * little-endian, in the order of rows. Nothing that a header says is trusted.
 */
import { describe } from '../../common/errors.js';
import { DTYPES, type Dtype, decodeHeader } from '../../stores/checkpoint/safetensors.js';
import { bad, readBytes, sizeOf } from '../bytes.js';

const MAX_HEADER_BYTES = 100 * 1024 * 1024;

/** An array that was not read yet. */
export interface ArrayInFile {
  file: string;
  /** For messages: the file, and the tensor if it has several */
  where: string;
  dtype: Dtype;
  shape: readonly number[];
  /** Place of the first element, in bytes of the file */
  start: number;
}

/** The tensors of a file by name. @throws BAD_DATA */
export async function safetensorsArrays(file: string): Promise<Map<string, ArrayInFile>> {
  const size = await sizeOf(file);
  const expected = `${file}: must be a safetensors file`;
  if (size < 8) throw bad(`${expected}, and has ${size} bytes`);
  const length = Number(new DataView(await readBytes(file, 0, 8)).getBigUint64(0, true));
  if (length > Math.min(MAX_HEADER_BYTES, size - 8))
    throw bad(`${expected}, and says that its header has ${length} of ${size} bytes`);
  const header = new Uint8Array(await readBytes(file, 8, 8 + length));
  try {
    const { tensors } = decodeHeader(header, size, file);
    return new Map(
      [...tensors].map(([name, { dtype, shape, start }]) => {
        return [name, { file, where: `${file}: tensor "${name}"`, dtype, shape, start }];
      }),
    );
  } catch (error) {
    throw bad(`${file}: must be a safetensors file: ${describe(error)}`, error);
  }
}

/** Types of numpy, without the sign of their byte order. */
const NPY_TYPES: Record<string, Dtype> = {
  ...{ f2: 'F16', f4: 'F32', f8: 'F64' },
  ...{ i1: 'I8', i2: 'I16', i4: 'I32', i8: 'I64' },
  ...{ u1: 'U8', u2: 'U16', u4: 'U32', u8: 'U64' },
};
const NPY_MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];

/** The array of a file. @throws BAD_DATA */
export async function npyArray(file: string): Promise<ArrayInFile> {
  const size = await sizeOf(file);
  const expected = `${file}: must be an npy file`;
  const lead = new Uint8Array(await readBytes(file, 0, Math.min(size, 12)));
  if (lead.length < 12 || NPY_MAGIC.some((byte, index) => lead[index] !== byte))
    throw bad(`${expected}, and does not begin as one`);
  const view = new DataView(lead.buffer);
  const [begin, length] = lead[6] === 1 ? [10, view.getUint16(8, true)] : [12, view.getUint32(8, true)];
  const start = begin + length;
  if (start > Math.min(MAX_HEADER_BYTES, size)) throw bad(`${expected}, and ends in its header`);
  const header = new TextDecoder('latin1').decode(await readBytes(file, begin, start));
  const field = (name: string, value: string) =>
    new RegExp(`['"]${name}['"]\\s*:\\s*${value}`).exec(header)?.[1];
  const type = field('descr', `['"]([^'"]*)['"]`);
  const order = field('fortran_order', '(True|False)');
  const dims = field('shape', '\\(([\\d\\s,]*)\\)');
  if (type === undefined || order === undefined || dims === undefined)
    throw bad(`${expected}, and its header is ${JSON.stringify(header.slice(0, 80))}`);
  const dtype = /^[<|=]/.test(type) ? NPY_TYPES[type.slice(1)] : undefined;
  if (dtype === undefined)
    throw bad(
      `${file}: must have little-endian floats or integers, not ${JSON.stringify(type.slice(0, 9))} of numpy`,
    );
  const shape = dims.split(',').flatMap((text) => (text.trim() === '' ? [] : [Number(text)]));
  if (order === 'True' && shape.length > 1)
    throw bad(`${file}: must have rows one after the other, not columns (fortran_order)`);
  const bytes = shape.reduce((product, each) => product * each, DTYPES[dtype]);
  if (bytes !== size - start)
    throw bad(`${file}: must have ${bytes} bytes of ${shape.join(' x ')} values, and has ${size - start}`);
  return { file, where: file, dtype, shape, start };
}

/** A float of 16 bits. */
function halfOf(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const FLOATS: Partial<Record<Dtype, (bytes: ArrayBuffer) => Float32Array>> = {
  F32: (bytes) => new Float32Array(bytes),
  F64: (bytes) => Float32Array.from(new Float64Array(bytes)),
  F16: (bytes) => Float32Array.from(new Uint16Array(bytes), halfOf),
  BF16: (bytes) => new Float32Array(Uint32Array.from(new Uint16Array(bytes), (bits) => bits << 16).buffer),
};

const INTEGERS: Partial<Record<Dtype, (bytes: ArrayBuffer) => ArrayLike<number | bigint>>> = {
  I8: (bytes) => new Int8Array(bytes),
  U8: (bytes) => new Uint8Array(bytes),
  I16: (bytes) => new Int16Array(bytes),
  U16: (bytes) => new Uint16Array(bytes),
  I32: (bytes) => new Int32Array(bytes),
  U32: (bytes) => new Uint32Array(bytes),
  I64: (bytes) => new BigInt64Array(bytes),
  U64: (bytes) => new BigUint64Array(bytes),
};

export const isFloat = ({ dtype }: ArrayInFile): boolean => FLOATS[dtype] !== undefined;
export const isInteger = ({ dtype }: ArrayInFile): boolean => INTEGERS[dtype] !== undefined;

/** Elements `first` to `end` of an array. */
function elements({ file, dtype, start }: ArrayInFile, first: number, end: number): Promise<ArrayBuffer> {
  const width = DTYPES[dtype];
  return readBytes(file, start + first * width, start + end * width);
}

/** Elements `first` to `end` of an array for which `isFloat` holds. */
export async function readFloats(array: ArrayInFile, first: number, end: number): Promise<Float32Array> {
  return FLOATS[array.dtype]!(await elements(array, first, end));
}

/** Elements `first` to `end` of an array for which `isInteger` holds. */
export async function readIntegers(
  array: ArrayInFile,
  first: number,
  end: number,
): Promise<ArrayLike<number | bigint>> {
  return INTEGERS[array.dtype]!(await elements(array, first, end));
}
