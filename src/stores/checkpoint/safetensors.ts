/**
 * The header of files in the safetensors format (https://huggingface.co/docs/safetensors): u64 length of the
 * header, the header (JSON: a tensor's type, shape and byte range, plus strings under __metadata__), then the
 * tensors one after the other, little-endian. Other languages have libraries for it, and unlike a pickle it
 * cannot run code.
 *
 * The reader trusts nothing: ranges must follow each other without gaps and end with the file.
 */
import { describe, KintsugiError } from '../../common/errors.js';

/** Bytes per element. */
export const DTYPES = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  F64: 8,
  I64: 8,
  U64: 8,
} as const;
export type Dtype = keyof typeof DTYPES;

const ALIGNMENT = 8;
const METADATA = '__metadata__';

export interface TensorSpec {
  name: string;
  dtype: Dtype;
  shape: readonly number[];
}

export interface Tensor extends TensorSpec {
  /** Start in the file and length, in bytes. */
  start: number;
  bytes: number;
}

export interface TensorLayout {
  tensors: Map<string, Tensor>;
  metadata: Record<string, string>;
  fileBytes: number;
}

export function bad(file: string, problem: string): KintsugiError {
  return new KintsugiError('BAD_CHECKPOINT', `${file}: ${problem}`);
}

export function encodeHeader(
  specs: readonly TensorSpec[],
  metadata: Record<string, string>,
): { header: Uint8Array; layout: TensorLayout } {
  const json: Record<string, unknown> = Object.keys(metadata).length > 0 ? { [METADATA]: metadata } : {};
  let offset = 0;
  const sized = specs.map((spec) => {
    const bytes = spec.shape.reduce((product, size) => product * size, DTYPES[spec.dtype]);
    json[spec.name] = { dtype: spec.dtype, shape: spec.shape, data_offsets: [offset, offset + bytes] };
    offset += bytes;
    return { ...spec, start: offset - bytes, bytes };
  });
  const text = new TextEncoder().encode(JSON.stringify(json));
  const length = Math.ceil(text.length / ALIGNMENT) * ALIGNMENT;
  const header = new Uint8Array(8 + length).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  header.set(text, 8);
  const tensors = new Map(
    sized.map((tensor) => [tensor.name, { ...tensor, start: tensor.start + header.length }]),
  );
  return { header, layout: { tensors, metadata, fileBytes: header.length + offset } };
}

/** Checks a header (without its length) against the size of its file. @throws BAD_CHECKPOINT */
export function decodeHeader(header: Uint8Array, fileBytes: number, file: string): TensorLayout {
  if (header[0] !== 0x7b) throw bad(file, 'the header is not JSON');
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(header));
  } catch (error) {
    throw bad(file, `the header is not JSON (${describe(error)})`);
  }
  const { [METADATA]: metadata = {}, ...entries } = json as Record<string, unknown>;
  if (typeof metadata !== 'object' || metadata === null) throw bad(file, 'metadata is not an object');
  for (const value of Object.values(metadata)) {
    if (typeof value !== 'string') throw bad(file, 'metadata with a value that is not a string');
  }
  const dataStart = 8 + header.length;
  const tensors = Object.entries(entries).map(([name, entry]) => tensorOf(name, entry, file));
  tensors.sort((a, b) => a.start - b.start || a.bytes - b.bytes);
  let end = 0;
  for (const tensor of tensors) {
    if (tensor.start !== end)
      throw bad(file, `tensor "${tensor.name}" starts at ${tensor.start}, not at ${end}`);
    end += tensor.bytes;
    tensor.start += dataStart;
  }
  if (dataStart + end !== fileBytes) {
    throw bad(file, `${fileBytes} bytes where the header says ${dataStart + end}`);
  }
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  return { tensors: byName, metadata: metadata as Record<string, string>, fileBytes };
}

function tensorOf(name: string, entry: unknown, file: string): Tensor {
  const { dtype, shape, data_offsets: offsets } = (entry ?? {}) as Record<string, unknown>;
  const count = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
  if (typeof dtype !== 'string' || !Object.hasOwn(DTYPES, dtype)) {
    throw bad(file, `tensor "${name}" has an unknown type`);
  }
  if (!Array.isArray(shape) || !shape.every(count)) throw bad(file, `tensor "${name}" has no valid shape`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(count)) {
    throw bad(file, `tensor "${name}" has no valid byte range`);
  }
  const [start, end] = offsets as [number, number];
  const bytes = shape.reduce((product: number, size: number) => product * size, DTYPES[dtype as Dtype]);
  if (end - start !== bytes) {
    throw bad(file, `tensor "${name}" has ${end - start} bytes where its shape needs ${bytes}`);
  }
  return { name, dtype: dtype as Dtype, shape, start, bytes };
}
