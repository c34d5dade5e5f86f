/**
 * Frees the memory of received bytes as soon as their message has been handled.
 *
 * The kernel's bytes come in pieces of up to 64 KiB. `ws` copies the pieces of a message into one buffer and
 * tells of the message while it handles the last piece. So every earlier piece is unused from then on. This
 * depends on private fields of `ws`: each socket is checked once, when it opens. Where a field is missing or
 * the library tells of messages later, nothing is freed here, and the garbage collector does it.
 */
import type { Readable } from 'node:stream';
import { WebSocket } from 'ws';
import { RELEASED_FROM, release } from './release.js';

/** The private fields of a WebSocket of `ws` 8 that this depends on. */
interface Internals {
  _socket?: Readable | null;
  _receiver?: { _buffers?: unknown; _allowSynchronousEvents?: unknown } | null;
}

/** The TCP socket below, if early release is safe on it. */
function releasableSocket(ws: WebSocket): Readable | undefined {
  const { _socket: socket, _receiver: receiver } = ws as unknown as Internals;
  // Messages are told of while their last piece is handled, and pieces are kept in a list until then.
  if (receiver?._allowSynchronousEvents !== true || !Array.isArray(receiver._buffers)) return undefined;
  // The library listens already, so that it has handled a piece before `ReadMemory` hears of it.
  if (typeof socket?.on !== 'function' || socket.listenerCount('data') === 0) return undefined;
  return socket;
}

let warned = false;

function warn(): void {
  if (warned) return;
  warned = true;
  process.emitWarning(
    'this version of the package "ws" is not known inside: memory of frames is left to the garbage collector',
    { code: 'KINTSUGI_WS_INTERNALS' },
  );
}

export class ReadMemory {
  /** Pieces that were read since the last message was handled, each of `RELEASED_FROM` bytes or more. */
  private pieces: Buffer[] = [];
  /** True: early release is safe on this socket. */
  private releases = false;
  /** The piece at hand ends a ping or a pong, so its memory may be in use by an answer. */
  private skipped = false;

  constructor(ws: WebSocket) {
    if (ws.readyState === WebSocket.OPEN) this.listen(ws);
    else ws.once('open', () => this.listen(ws));
    const skip = () => {
      this.skipped = true;
    };
    ws.on('ping', skip);
    ws.on('pong', skip);
  }

  private listen(ws: WebSocket): void {
    const socket = releasableSocket(ws);
    if (!socket) return warn();
    this.releases = true;
    socket.on('data', (piece: Buffer) => {
      if (ws.readyState === WebSocket.OPEN) this.add(piece);
      // After a close no message may come, however much the other side sends.
      else this.pieces = [];
    });
  }

  private add(piece: Buffer): void {
    // The answer to a ping is sent from the memory that the ping arrived in, whenever the other side reads
    // it.
    if (!this.skipped && piece.byteLength >= RELEASED_FROM) this.pieces.push(piece);
    this.skipped = false;
  }

  /** Frees `message`, which has been handled, and the pieces that it was copied from. */
  handled(message: Buffer): void {
    if (!this.releases) return;
    // A large message was put together in memory of its own; `release` leaves views alone.
    release([message]);
    if (this.pieces.length === 0) return;
    release(this.pieces);
    this.pieces = [];
  }
}
