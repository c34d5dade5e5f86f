/**
 * Frames between a gateway and a program on the same machine, over a Unix socket: two lengths (u32, little
 * endian), a message in JSON, and bytes behind it. JSON, because both sides have a fast parser for it at
 * hand. Keys and rows are never in it: they lie in shared memory, or in the bytes where memory cannot be
 * shared.
 */
import { KintsugiError } from '../../common/errors.js';

const HEAD_BYTES = 8;
/** A longer message, or more bytes behind it, is refused. */
export const MAX_JSON_BYTES = 16 << 20;
const MAX_PAYLOAD_BYTES = 256 << 20;

export interface GatewayFrame {
  message: Record<string, unknown>;
  payload: Buffer;
  /** The message and the payload have so many. */
  bytes: number;
}

const NOTHING = Buffer.alloc(0);

/** The head and the message; the bytes follow as they are. */
export function encodeFrame(message: object, payloadBytes = 0): Buffer {
  const json = JSON.stringify(message);
  const length = Buffer.byteLength(json);
  const frame = Buffer.allocUnsafe(HEAD_BYTES + length);
  frame.writeUInt32LE(length, 0);
  frame.writeUInt32LE(payloadBytes, 4);
  frame.write(json, HEAD_BYTES);
  return frame;
}

/** Puts frames together from the pieces that a socket reads. */
export class FrameReader {
  private pieces: Buffer[] = [];
  private have = 0;
  private need = HEAD_BYTES;

  /** The frames that are complete with this piece. @throws BAD_FRAME */
  take(piece: Buffer): GatewayFrame[] {
    this.pieces.push(piece);
    this.have += piece.length;
    const frames: GatewayFrame[] = [];
    while (this.have >= this.need) {
      const [first, ...others] = this.pieces;
      const all = others.length === 0 ? first! : Buffer.concat(this.pieces);
      this.pieces = [all];
      const json = all.readUInt32LE(0);
      const bytes = all.readUInt32LE(4);
      if (json > MAX_JSON_BYTES || bytes > MAX_PAYLOAD_BYTES)
        throw new KintsugiError('BAD_FRAME', `a frame of ${json} + ${bytes} bytes is too large`);
      this.need = HEAD_BYTES + json + bytes;
      if (this.have < this.need) break;
      const end = HEAD_BYTES + json;
      const payload = bytes === 0 ? NOTHING : all.subarray(end, end + bytes);
      frames.push({ message: parse(all.toString('utf8', HEAD_BYTES, end)), payload, bytes: json + bytes });
      const rest = all.subarray(this.need);
      this.pieces = rest.length > 0 ? [rest] : [];
      this.have = rest.length;
      this.need = HEAD_BYTES;
    }
    return frames;
  }
}

function parse(json: string): Record<string, unknown> {
  try {
    const message: unknown = JSON.parse(json);
    if (typeof message === 'object' && message !== null && !Array.isArray(message))
      return message as Record<string, unknown>;
  } catch {
    // Refused below.
  }
  throw new KintsugiError('BAD_FRAME', 'a message is not a JSON object');
}
