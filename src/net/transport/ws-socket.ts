/**
 * A WebSocket of the `ws` package as a `Socket`; used by the client and by the fallback server.
 *
 * `ws` keeps the buffer that it is given until the kernel has taken it, so every frame has memory of its own,
 * which large frames share in turn (FrameMemory). `ws` sets TCP_NODELAY itself. It does not detect dead
 * peers: without the pings here a peer whose machine lost power would hold its connection, with the bytes
 * that are buffered for it, until TCP gives up after a quarter of an hour.
 */
import type { Socket as TcpSocket } from 'node:net';
import { WebSocket } from 'ws';
import { describe } from '../../common/errors.js';
import type { Connection, Socket } from './connection.js';
import type { InboundMemory } from './inbound.js';
import { ReadMemory } from './read-memory.js';
import { release } from './release.js';
import type { TransportLimits } from './types.js';

/**
 * Frames below this size are cheap to allocate; above it fresh memory costs page faults and full garbage
 * collections.
 */
const REUSED_FROM = 8 * 1024;
/** Most bytes that a socket keeps for its next frames. */
const MAX_REUSED_BYTES = 8 * 1024 * 1024;

/**
 * Memory of large frames that are sent, used again when the kernel has taken them. A megabyte that is
 * allocated for every frame makes V8 collect its whole heap every few dozen frames, because memory outside of
 * the heap counts as pressure on it.
 */
export class FrameMemory {
  private readonly free: Buffer[] = [];
  /** Bytes of `free`, at most `MAX_REUSED_BYTES`. */
  private freeBytes = 0;

  take(bytes: number): Buffer {
    if (bytes < REUSED_FROM || bytes > MAX_REUSED_BYTES) return Buffer.allocUnsafe(bytes);
    const at = this.free.findLastIndex((buffer) => buffer.buffer.byteLength >= bytes);
    const [known] = at < 0 ? [] : this.free.splice(at, 1);
    if (!known) return Buffer.allocUnsafeSlow(2 ** Math.ceil(Math.log2(bytes))).subarray(0, bytes);
    this.freeBytes -= known.buffer.byteLength;
    return Buffer.from(known.buffer, 0, bytes);
  }

  /** Takes back the memory of a frame that is needed no more. False: it is not kept. */
  giveBack(frame: Uint8Array): boolean {
    const size = frame.buffer.byteLength;
    const { byteLength } = frame;
    if (byteLength < REUSED_FROM || byteLength > MAX_REUSED_BYTES || this.freeBytes + size > MAX_REUSED_BYTES)
      return false;
    this.freeBytes += size;
    this.free.push(frame as Buffer);
    return true;
  }
}

const receivedFrames = new FrameMemory();

/** Memory for frames that come in pieces, of all connections of the process. */
export const INBOUND_MEMORY: InboundMemory = {
  take: (bytes) => receivedFrames.take(bytes),
  giveBack: (frame) => {
    if (!receivedFrames.giveBack(frame)) release([new Uint8Array(frame.buffer)]);
  },
};

export class WsSocket implements Socket {
  readonly remote: string;
  readonly #ws: WebSocket;
  readonly #limits: TransportLimits;
  readonly #memory = new FrameMemory();
  #closeTimer: NodeJS.Timeout | undefined;

  constructor(ws: WebSocket, remote: string, limits: TransportLimits) {
    this.#ws = ws;
    this.remote = remote;
    this.#limits = limits;
  }

  get bufferedBytes(): number {
    return this.#ws.bufferedAmount;
  }

  /** The TCP socket below, a private field of the library; undefined where the library has no such field. */
  get #tcp(): (TcpSocket & { _handle?: { fd?: number } | null }) | undefined {
    return (this.#ws as unknown as { _socket?: TcpSocket })._socket;
  }

  get fd(): number {
    return this.#tcp?._handle?.fd ?? -1;
  }

  get receivedBytes(): number {
    return this.#tcp?.bytesRead ?? 0;
  }

  ping(bytes: number): boolean {
    if (this.#ws.readyState !== WebSocket.OPEN || this.#ws.bufferedAmount > 0) return false;
    this.#ws.ping(Buffer.alloc(bytes));
    return true;
  }

  allocate(bytes: number): Uint8Array {
    return this.#memory.take(bytes);
  }

  giveBack(frame: Uint8Array): void {
    this.#memory.giveBack(frame);
  }

  send(frame: Uint8Array, sent: () => void = () => this.giveBack(frame)): void {
    if (this.#ws.readyState === WebSocket.OPEN) this.#ws.send(frame, { binary: true, compress: false }, sent);
    else sent();
  }

  end(code: number, reason: string): void {
    this.#ws.close(code, reason);
    this.#closeTimer ??= setTimeout(() => this.#ws.terminate(), this.#limits.closeMs);
  }

  destroy(): void {
    this.#ws.terminate();
  }

  /** Connects the library's events to the connection. `gone` is called when the TCP connection is closed. */
  attach(connection: Connection, gone?: () => void): void {
    const ws = this.#ws;
    let heard = true;
    const hear = (): void => {
      heard = true;
    };
    const ping = (): void => {
      // Skip pings while connecting: dialing has a time limit of its own.
      if (ws.readyState === WebSocket.CONNECTING) return;
      if (!heard) return connection.silent(this.#limits.pingMs);
      heard = false;
      if (ws.readyState === WebSocket.OPEN) ws.ping();
    };
    // A ping is judged after reading: its answer may have come while this process stood still.
    const pings = setInterval(() => setImmediate(ping), this.#limits.pingMs).unref();
    const read = new ReadMemory(ws);
    ws.on('message', (data, isBinary) => {
      heard = true;
      if (isBinary) connection.receive(data as Buffer);
      else connection.reject('a text message');
      // A frame is valid only during the call.
      read.handled(data as Buffer);
    });
    ws.on('ping', hear);
    ws.on('pong', hear);
    ws.on('error', (error) => {
      // The library has sent its close message; the TCP connection may take until the timer.
      connection.closed(1006, describe(error));
      this.#closeTimer ??= setTimeout(() => ws.terminate(), this.#limits.closeMs);
    });
    ws.on('close', (code, reason) => {
      clearInterval(pings);
      clearTimeout(this.#closeTimer);
      connection.closed(code, reason.toString());
      gone?.();
    });
  }
}
