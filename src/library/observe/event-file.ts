/**
 * Event files that TensorBoard reads: records of a length, a masked CRC-32C of the length, an `Event` as
 * protocol buffers have it, and a masked CRC-32C of that.
 *
 *   Event: 1 wall_time double, 2 step int64, 3 file_version string, 5 summary
 *   Summary: 1 repeated Value; Value: 1 tag string, 2 simple_value float
 */
import { mkdirSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { causedBy } from '../../common/errors.js';
import { delimited, float32, float64, integer, text } from '../../common/protobuf.js';
import { appendWhole } from './aside.js';

const POLYNOMIAL = 0x82f63b78;
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
  return crc;
});

/** CRC-32C (Castagnoli). */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = TABLE[(crc ^ byte) & 0xff]! ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** A checksum of bytes that contain checksums would be weak, so records have it rotated, plus a constant. */
function masked(bytes: Uint8Array): number {
  const crc = crc32c(bytes);
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}

function record(data: Uint8Array): Uint8Array {
  const out = Buffer.alloc(12 + data.byteLength + 4);
  out.writeBigUInt64LE(BigInt(data.byteLength), 0);
  out.writeUInt32LE(masked(out.subarray(0, 8)), 8);
  out.set(data, 12);
  out.writeUInt32LE(masked(data), 12 + data.byteLength);
  return out;
}

// ---- files

let files = 0;

/** One file of a run; TensorBoard shows each directory as a run. */
export class EventFile {
  private readonly path: string;

  /** @throws BAD_ARGUMENT when nothing can be written there */
  constructor(directory: string) {
    const seconds = Math.floor(Date.now() / 1000);
    const name = `events.out.tfevents.${seconds}.${hostname()}.${process.pid}.${files++}`;
    this.path = join(directory, name);
    try {
      mkdirSync(directory, { recursive: true });
      this.append([text(3, 'brain.Event:2')]);
    } catch (error) {
      throw causedBy(error, 'BAD_ARGUMENT', `--tensorboard: nothing can be written to ${directory}`);
    }
  }

  /** Values by their tags; those that are no numbers are left out. @throws what the system says */
  scalars(step: number, values: Readonly<Record<string, number | undefined>>): void {
    const summary = Object.entries(values).flatMap(([tag, value]) =>
      value !== undefined && Number.isFinite(value) ? [delimited(1, [text(1, tag), float32(2, value)])] : [],
    );
    if (summary.length === 0) return;
    this.append([integer(2, step), delimited(5, summary)]);
  }

  private append(fields: Buffer[]): void {
    appendWhole(this.path, record(Buffer.concat([float64(1, Date.now() / 1000), ...fields])));
  }
}
