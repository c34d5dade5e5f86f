/**
 * The accepting side, for every server library: the connections, the number of them that have not proved
 * themselves yet, and the errors of listening.
 */
import { causedBy, KintsugiError } from '../../common/errors.js';
import { gateOpens, serverHandshake } from './auth.js';
import { Connection, type Socket } from './connection.js';
import { CloseCode, type ListenOptions, type TransportLimits, type WindowSize } from './types.js';
import { INBOUND_MEMORY } from './ws-socket.js';

export class Acceptor {
  readonly #options: ListenOptions;
  readonly #limits: TransportLimits;
  readonly #connections = new Set<Connection>();
  #unauthenticated = 0;
  /** Connections that did not show a token that they needed. Only grows. */
  authFailures = 0;
  #closing = false;
  #whenEmpty: (() => void) | undefined;

  constructor(options: ListenOptions, limits: TransportLimits) {
    this.#options = options;
    this.#limits = limits;
  }

  /**
   * The HTTP status with which a WebSocket upgrade is refused; undefined: it is accepted. 307: there is only
   * a small window left. A request with an Origin comes from a page in somebody's browser, which may reach
   * loopback ports that need no token. No peer of ours sends an Origin.
   */
  refusal(
    origin: string | undefined,
    gate: string | undefined,
    size: WindowSize,
  ): 307 | 401 | 403 | 503 | undefined {
    if (origin) return 403;
    const { token, nodeToken } = this.#options;
    if (!gateOpens(gate, token, nodeToken)) {
      this.authFailures++;
      return 401;
    }
    const { maxUnauthenticated, maxLinks } = this.#limits;
    const full = this.#unauthenticated >= maxUnauthenticated || this.#connections.size >= maxLinks;
    const { received } = this.#options;
    if (this.#closing || full) return 503;
    if (size === 'large') return received && !received.hasLarge() ? 307 : undefined;
    return received?.isFull() ? 503 : undefined;
  }

  accept(socket: Socket, size: WindowSize): Connection {
    const settled = (): void => {
      this.#unauthenticated--;
    };
    this.#unauthenticated++;
    const { token, nodeToken } = this.#options;
    const received = this.#options.received?.open(size);
    const connection = new Connection(socket, {
      outgoing: false,
      handshake: serverHandshake(token, nodeToken, received?.terms),
      received: received && { link: received, memory: INBOUND_MEMORY },
      handlers: this.#options.handlers,
      limits: this.#limits,
      onReady: settled,
      onRefused: (error) => {
        settled();
        if (error.code === 'UNAUTHORIZED') this.authFailures++;
      },
    });
    this.#connections.add(connection);
    return connection;
  }

  /** The socket of a connection is closed. */
  gone(connection: Connection): void {
    this.#connections.delete(connection);
    if (this.#connections.size === 0) this.#whenEmpty?.();
  }

  /** Closes all connections and resolves when their sockets are. */
  async close(): Promise<void> {
    this.#closing = true;
    for (const connection of [...this.#connections]) connection.close('shutting down', CloseCode.GOING_AWAY);
    if (this.#connections.size > 0) await new Promise<void>((resolve) => (this.#whenEmpty = resolve));
  }
}

/** The error of a failed bind, in our terms. */
export function listenError(error: unknown, host: string, port: number): KintsugiError {
  const code = (error as { code?: string }).code;
  if (code === 'EADDRINUSE') {
    return new KintsugiError('PORT_IN_USE', `port ${port} on ${host} is in use`, { cause: error });
  }
  return causedBy(error, 'BAD_ARGUMENT', `cannot listen on ${host}:${port}`);
}
