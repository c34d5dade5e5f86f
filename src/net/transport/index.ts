/**
 * The transport: `listen` and `dial`. Frames over WebSocket, one port per role, a mutual handshake before
 * anything else. Only this file chooses the server library; both speak the same wire.
 */
import { KintsugiError } from '../../common/errors.js';
import { isLoopback, MIN_TOKEN_BYTES } from './auth.js';
import { checkTokens } from './http.js';
import {
  type DialOptions,
  type Link,
  type Listener,
  type ListenOptions,
  limitsOf,
  type ServerKind,
} from './types.js';
import { listenUws, loadUws } from './uws-server.js';
import { dialWs } from './ws-client.js';
import { listenWs } from './ws-server.js';

export { coded } from './http.js';
export { type PartBuffer, PartMemory } from './part-memory.js';
export { GONE_MS } from './pulse.js';
export { release } from './release.js';
export { CLIENT_TLS, type ClientTls, ROLE_TLS, type RoleTls, type ServerTls } from './tls.js';
export {
  CloseCode,
  type DialOptions,
  type HttpAnswer,
  type HttpDetails,
  type HttpHandler,
  type HttpPost,
  type HttpStream,
  LINK_PATH,
  type Link,
  type LinkHandlers,
  type Listener,
  type ListenOptions,
  type ServerKind,
  TRANSPORT_LIMITS,
  type TransportLimits,
} from './types.js';

/**
 * Starts a server. `host` other than loopback needs a token.
 * @throws TOKEN_REQUIRED, PORT_IN_USE, BAD_ARGUMENT (an address that is not ours, an unknown
 * KINTSUGI_TRANSPORT, a certificate that cannot be used, or tokens that are the same or too short),
 * DEPENDENCY_MISSING (uws was demanded and cannot be loaded)
 */
export async function listen(options: ListenOptions): Promise<Listener> {
  if (!options.token && !isLoopback(options.host)) {
    throw new KintsugiError(
      'TOKEN_REQUIRED',
      `listening on "${options.host}" needs a token; loopback does not`,
    );
  }
  checkTokens(options);
  checkLengths(options);
  checkPort(options.port, 0);
  const kind = await serverKind(options.server, options.tls !== undefined);
  return kind === 'uws' ? listenUws(options, limitsOf(options)) : listenWs(options, limitsOf(options));
}

/**
 * Connects and completes the handshake; `onOpen` has been called when this resolves.
 * @throws UNREACHABLE, UNAUTHORIZED (token or certificate), ABORTED, BAD_FRAME (the other side speaks
 * something else), BAD_ARGUMENT
 */
export async function dial(options: DialOptions): Promise<Link> {
  checkPort(options.port, 1);
  return dialWs(options, limitsOf(options));
}

/** Refuses short tokens: a listener on the network can try all of them until one gives the proof it heard. */
function checkLengths({ host, tls, token, nodeToken }: ListenOptions): void {
  if (tls || isLoopback(host)) return;
  for (const [name, secret] of [
    ['token', token],
    ['token of nodes', nodeToken],
  ] as const) {
    const bytes = Buffer.byteLength(secret ?? '');
    if (!secret || bytes >= MIN_TOKEN_BYTES) continue;
    const wanted = `the ${name} must have at least ${MIN_TOKEN_BYTES} bytes, not ${bytes}`;
    const why = 'a short one can be guessed from its proof; "openssl rand -base64 32" makes a long one';
    throw new KintsugiError('BAD_ARGUMENT', `beyond loopback without TLS ${wanted}: ${why}`);
  }
}

/**
 * Checks the port, because the libraries differ: one takes 65536 for 0, the other throws errors of its own.
 */
function checkPort(port: number, lowest: number): void {
  if (Number.isInteger(port) && port >= lowest && port <= 65_535) return;
  throw new KintsugiError('BAD_ARGUMENT', `${port} is no port: it must be ${lowest} to 65535`);
}

async function serverKind(demanded: ServerKind | undefined, tls: boolean): Promise<ServerKind> {
  const choice = demanded ?? (process.env.KINTSUGI_TRANSPORT || undefined);
  if (choice === 'uws' && tls) {
    throw new KintsugiError('BAD_ARGUMENT', 'the server "uws" is not reliable with TLS; use "ws"');
  }
  if (choice === 'uws' || choice === 'ws') return choice;
  if (choice !== undefined) {
    throw new KintsugiError('BAD_ARGUMENT', `KINTSUGI_TRANSPORT is "${choice}"; it can be "uws" or "ws"`);
  }
  // uWebSockets.js loses connections with TLS; tls.ts says why.
  if (tls) return 'ws';
  return loadUws().then(
    () => 'uws',
    () => 'ws',
  );
}
