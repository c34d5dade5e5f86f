/**
 * A WebSocket of the `ws` package as a `Socket`; used by the client and by the fallback server.
 *
 * `ws` keeps the buffer that it is given until the kernel has taken it, so every frame gets memory of its own. It sets
 * TCP_NODELAY itself. It has no dead-peer detection: without the pings here a peer whose machine lost power would hold its
 * connection, and all that is buffered for it, until TCP gives up after a quarter of an hour.
 */
import { WebSocket } from 'ws';
import { describe } from '../errors.js';
import type { Connection, Socket } from './connection.js';
import type { TransportLimits } from './types.js';

export class WsSocket implements Socket {
  readonly remote: string;
  readonly #ws: WebSocket;
  readonly #limits: TransportLimits;
  #closeTimer: NodeJS.Timeout | undefined;

  constructor(ws: WebSocket, remote: string, limits: TransportLimits) {
    this.#ws = ws;
    this.remote = remote;
    this.#limits = limits;
  }

  get bufferedBytes(): number {
    return this.#ws.bufferedAmount;
  }

  allocate(bytes: number): Uint8Array {
    return Buffer.allocUnsafe(bytes);
  }

  send(frame: Uint8Array): void {
    if (this.#ws.readyState === WebSocket.OPEN) this.#ws.send(frame, { binary: true, compress: false });
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
    const pings = setInterval(() => {
      if (!heard) return ws.terminate();
      heard = false;
      if (ws.readyState === WebSocket.OPEN) ws.ping();
    }, this.#limits.pingMs).unref();
    ws.on('message', (data, isBinary) => {
      heard = true;
      if (isBinary) connection.receive(data as Buffer);
      else connection.reject('a text message');
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
