/**
 * A local process that speaks the protocol for programs of other languages: they talk to it over a Unix
 * socket, and keys and rows lie in memory that both share. So there is one implementation of the protocol.
 *
 * A process that may open the socket may do everything that the gateway may. So only its owner can open it.
 */
import { lstatSync, rmSync } from 'node:fs';
import { createConnection, createServer, type Server } from 'node:net';
import { causedBy, KintsugiError } from '../../common/errors.js';
import { ProgramConnection, type ProgramConnectionOptions } from './connection.js';

export interface GatewayOptions extends ProgramConnectionOptions {
  /** Path of the Unix socket. There must be no file, or a socket that nobody listens on. */
  socket: string;
}

export class Gateway {
  private readonly connections = new Set<ProgramConnection>();

  private constructor(
    private readonly server: Server,
    readonly path: string,
  ) {}

  /** @throws BAD_ARGUMENT, PORT_IN_USE */
  static async open({ socket: path, ...options }: GatewayOptions): Promise<Gateway> {
    const server = createServer();
    const gateway = new Gateway(server, path);
    server.on('connection', (socket) => {
      const connection = new ProgramConnection(socket, options);
      gateway.connections.add(connection);
      void connection.closed.then(() => gateway.connections.delete(connection));
    });
    await listen(server, path);
    options.log.info('gateway.ready', { socket: path, scheduler: options.scheduler });
    return gateway;
  }

  /** Ends all connections, and their clients. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    await Promise.all([...this.connections].map((connection) => connection.close()));
    await closed;
  }
}

async function listen(server: Server, path: string): Promise<void> {
  try {
    await tryListen(server, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE')
      throw causedBy(error, 'BAD_ARGUMENT', `--socket ${path} cannot be made`);
    if (!lstatSync(path).isSocket() || (await answers(path)))
      throw new KintsugiError('PORT_IN_USE', `${path} is in use`);
    rmSync(path, { force: true });
    await tryListen(server, path);
  }
}

function tryListen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    // Nobody else may open it, from the first moment on.
    const before = process.umask(0o177);
    server.listen(path, () => {
      server.off('error', reject);
      resolve();
    });
    process.umask(before);
  });
}

/** A server listens on the socket already. */
function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection(path);
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}
