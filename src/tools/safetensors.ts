/**
 * Reads and writes safetensors files piece by piece, at any place, because tables outgrow memory. Their
 * header is read and written by src/checkpoint/safetensors.ts.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { basename } from 'node:path';
import {
  bad,
  decodeHeader,
  encodeHeader,
  type Layout,
  MAX_HEADER_BYTES,
  type Tensor,
  type TensorSpec,
} from '../checkpoint/safetensors.js';
import { describe, KintsugiError } from '../errors.js';

/** Writes tensors of known shapes, at any place in any order. What is never written stays zero. */
export class SafetensorsWriter {
  private constructor(
    private readonly file: FileHandle,
    readonly layout: Layout,
  ) {}

  static async create(
    path: string,
    tensors: readonly TensorSpec[],
    metadata: Record<string, string> = {},
  ): Promise<SafetensorsWriter> {
    const { header, layout } = encodeHeader(tensors, metadata);
    const file = await open(path, 'wx');
    try {
      await writeAt(file, header, 0);
      await file.truncate(layout.fileBytes);
    } catch (error) {
      await file.close();
      throw error;
    }
    return new SafetensorsWriter(file, layout);
  }

  /** `from`: bytes from the start of the tensor. */
  async write(name: string, from: number, data: ArrayBufferView): Promise<void> {
    const tensor = this.layout.tensors.get(name);
    if (!tensor || from < 0 || from + data.byteLength > tensor.bytes) {
      throw new KintsugiError('INTERNAL', `tensor "${name}" has no ${data.byteLength} bytes at ${from}`);
    }
    await writeAt(
      this.file,
      new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
      tensor.start + from,
    );
  }

  /** Resolves when the bytes are on the disk. */
  async finish(): Promise<void> {
    await this.file.sync();
    await this.file.close();
  }

  /** Closes without the promise of `finish`; does nothing after it. */
  async abandon(): Promise<void> {
    await this.file.close().catch(() => undefined);
  }
}

/** An open file whose header has been checked against the file's size. */
export class SafetensorsReader {
  private constructor(
    private readonly file: FileHandle,
    /** For messages. */
    readonly name: string,
    readonly layout: Layout,
  ) {}

  /** @throws BAD_CHECKPOINT with the file's name and what is wrong. */
  static async open(path: string): Promise<SafetensorsReader> {
    const name = basename(path);
    const file = await open(path, 'r').catch((error: unknown) => {
      throw bad(name, missing(error) ? 'the file is missing' : describe(error));
    });
    try {
      return new SafetensorsReader(file, name, await readLayout(file, name));
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** `bytes` bytes of a tensor, from `from` on; in a buffer of their own. */
  async read(tensor: Tensor, from: number, bytes: number): Promise<ArrayBuffer> {
    if (from < 0 || from + bytes > tensor.bytes) {
      throw new KintsugiError('INTERNAL', `tensor "${tensor.name}" has no ${bytes} bytes at ${from}`);
    }
    const data = new Uint8Array(bytes);
    await readAt(this.file, data, tensor.start + from, this.name);
    return data.buffer;
  }

  async close(): Promise<void> {
    await this.file.close();
  }
}

async function readLayout(file: FileHandle, name: string): Promise<Layout> {
  const fileBytes = (await file.stat()).size;
  if (fileBytes < 8) throw bad(name, `truncated: ${fileBytes} bytes, not even the length of a header`);
  const prefix = new Uint8Array(8);
  await readAt(file, prefix, 0, name);
  const length = Number(new DataView(prefix.buffer).getBigUint64(0, true));
  if (length > MAX_HEADER_BYTES) throw bad(name, `a header of ${length} bytes`);
  if (8 + length > fileBytes)
    throw bad(name, `truncated: ${fileBytes} bytes, the header alone has ${length}`);
  const header = new Uint8Array(length);
  await readAt(file, header, 8, name);
  return decodeHeader(header, fileBytes, name);
}

// ---- whole reads and writes; a system call may do less than it was asked for

async function writeAt(file: FileHandle, data: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < data.byteLength; ) {
    done += (await file.write(data, done, data.byteLength - done, position + done)).bytesWritten;
  }
}

async function readAt(file: FileHandle, data: Uint8Array, position: number, name: string): Promise<void> {
  for (let done = 0; done < data.byteLength; ) {
    const { bytesRead } = await file.read(data, done, data.byteLength - done, position + done);
    if (bytesRead === 0) throw bad(name, 'the file became shorter while it was read');
    done += bytesRead;
  }
}

/** The error of a file that does not exist. */
export function missing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';
}
