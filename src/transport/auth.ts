/**
 * The handshake, and the bearer check of the HTTP side.
 *
 *   server -> client  challenge { nonce, auth }      auth: the server has a token
 *   client -> server  proof     { nonce, mac? }      mac = HMAC(token, "client" || nonces)
 *   server -> client  ready     { mac? }             mac = HMAC(token, "server" || nonces)
 *
 * where `nonces` is the server's nonce and then the client's.
 *
 * It is mutual, because a client must not push its data to whoever took over a dead server's port; the token
 * never crosses the wire; fresh nonces from both sides make a recorded exchange useless; the role inside the
 * mac keeps one side's proof from being reflected as the other's. Without a token the exchange is the same
 * without macs, so that both sides still learn whether they agree. It authenticates the peer, it does not
 * encrypt: that is TLS's job.
 *
 * A server may have a second token, that of nodes. A proof that was made with it says that the dialing side
 * is a node, one with the other token that it is a client. The server answers with the token that was used.
 * With one token, a proof says nothing about the role.
 *
 * Before all this the upgrade request carries a gate pass, a mac of the token alone. It proves little
 * (whoever listens on an unencrypted network can repeat it) and saves a lot: server libraries assemble a
 * whole message before they hand it over, up to the largest frame, so whoever gets as far as the handshake
 * can make this process hold that much. Without the token nobody gets further than HTTP headers, whose size
 * is limited.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import { KintsugiError } from '../errors.js';

const NONCE_BYTES = 32;
/** Part of every mac, so that a proof for one version of the exchange is none for another. */
const CONTEXT = 'kintsugi link 1 ';

/** The header of an upgrade request that carries the gate pass. */
export const GATE_HEADER = 'kintsugi-gate';

export function gatePass(token: string): string {
  return createHmac('sha256', token).update(CONTEXT).update('gate').digest('hex');
}

/** True if the header's value opens the gate. The comparison takes the same time for every wrong one. */
export function gateOpens(given: string | undefined, token: string | undefined, nodeToken?: string): boolean {
  if (!token) return true;
  const one = sameText(given ?? '', gatePass(token));
  const other = nodeToken ? sameText(given ?? '', gatePass(nodeToken)) : false;
  return one || other;
}

/** What the token of a dialing side says about it; undefined when one token serves all. */
export type ProvedRole = 'node' | 'client' | undefined;

export interface HandshakeStep {
  /** To be sent now. */
  send?: object;
  /** The other side has proved itself; `send` comes first. */
  done: boolean;
  /** Of the other side, when it is done. */
  proved?: ProvedRole;
}

export interface Handshake {
  /** The first message of this side, if it speaks first. */
  start(): object | undefined;
  /** @throws UNAUTHORIZED, or BAD_FRAME for a message that does not belong here. */
  step(header: Record<string, unknown>): HandshakeStep;
}

export function serverHandshake(token: string | undefined, nodeToken?: string): Handshake {
  const nonce = randomBytes(NONCE_BYTES);
  return {
    start: () => ({ t: 'challenge', nonce, auth: Boolean(token) }),
    step(header) {
      if (header.t !== 'proof') throw unexpected('proof');
      const theirs = nonceOf(header);
      if (!token) {
        // A client that insists on a proof would wait for a mac that cannot be made.
        if (header.mac !== undefined) throw unauthorized('the client has a token and this side has none');
        return { send: { t: 'ready' }, done: true };
      }
      const proves = (secret: string): boolean => matches(header.mac, mac(secret, 'client', nonce, theirs));
      const isNode = nodeToken ? proves(nodeToken) : false;
      if (!isNode && !proves(token)) throw unauthorized('the token is missing or wrong');
      const send = { t: 'ready', mac: mac(isNode ? nodeToken! : token, 'server', nonce, theirs) };
      return { send, done: true, proved: nodeToken ? (isNode ? 'node' : 'client') : undefined };
    },
  };
}

export function clientHandshake(token: string | undefined): Handshake {
  const nonce = randomBytes(NONCE_BYTES);
  let theirs: Uint8Array | undefined;
  return {
    start: () => undefined,
    step(header) {
      if (theirs === undefined) {
        if (header.t !== 'challenge') throw unexpected('challenge');
        theirs = nonceOf(header);
        if (token && header.auth !== true) throw unauthorized('the other side has no token');
        if (!token && header.auth === true) throw unauthorized('the other side asks for a token');
        const proof = { t: 'proof', nonce };
        return { send: token ? { ...proof, mac: mac(token, 'client', theirs, nonce) } : proof, done: false };
      }
      if (header.t !== 'ready') throw unexpected('ready');
      if (token && !matches(header.mac, mac(token, 'server', theirs, nonce))) {
        throw unauthorized('the other side does not know the token');
      }
      return { done: true };
    },
  };
}

/**
 * True if an Authorization header carries `token`, which is never the token of the job. The comparison takes
 * the same time for every wrong one.
 */
export function bearerMatches(authorization: string | undefined, token: string): boolean {
  return sameText(authorization ?? '', `Bearer ${token}`);
}

function sameText(given: string, expected: string): boolean {
  // Digests have one length, so the comparison does not tell how long the secret is.
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}

/** 127.0.0.0/8, ::1 and localhost: addresses that other machines cannot reach. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase();
  return name === 'localhost' || name === '::1' || (isIP(name) === 4 && name.startsWith('127.'));
}

function mac(token: string, role: 'client' | 'server', server: Uint8Array, client: Uint8Array): Buffer {
  // Unambiguous without separators: the role is one of two words of one length and nonces have a fixed
  // length.
  return createHmac('sha256', token).update(CONTEXT).update(role).update(server).update(client).digest();
}

function matches(given: unknown, expected: Buffer): boolean {
  return given instanceof Uint8Array && given.length === expected.length && timingSafeEqual(given, expected);
}

function nonceOf(header: Record<string, unknown>): Uint8Array {
  const { nonce } = header;
  if (nonce instanceof Uint8Array && nonce.length === NONCE_BYTES) return nonce;
  throw new KintsugiError('BAD_FRAME', `a handshake message needs a nonce of ${NONCE_BYTES} bytes`);
}

const unauthorized = (message: string): KintsugiError => new KintsugiError('UNAUTHORIZED', message);
const unexpected = (wanted: string): KintsugiError =>
  new KintsugiError('BAD_FRAME', `expected the handshake message "${wanted}"`);
