/**
 * The handshake, and the bearer check of the HTTP side.
 *
 *   server -> client  challenge { nonce, auth }      auth: the server has a token
 *   client -> server  proof     { nonce, mac? }      mac = HMAC(token, "client" || nonces)
 *   server -> client  ready     { mac? }             mac = HMAC(token, "server" || nonces)
 *
 * where `nonces` is the server's nonce and then the client's.
 *
 * `proof` and `ready` also say how their sender wants frames (`SendTerms` of outbound.ts), if not in one
 * message: `piece`, the bytes of the largest message, and `credit`, the bytes that the other side may send
 * before it is granted more. Without `credit` there is no limit.
 *
 * The handshake is mutual, because a client must not push its data to a process that took over a dead
 * server's port. The token never crosses the wire. Fresh nonces from both sides make a recorded exchange
 * useless. The role inside the mac keeps one side's proof from being reflected as the other's. Without a
 * token the exchange is the same without macs, so both sides still learn whether they agree. The handshake
 * authenticates the peer and does not encrypt: that is TLS's job.
 *
 * A server may have a second token, that of nodes. A proof that was made with it says that the dialing side
 * is a node; a proof with the other token says that it is a client. The server answers with the token that
 * was used. With one token, a proof says nothing about the role.
 *
 * Before all this the upgrade request carries a gate pass, a mac of the token alone. The pass proves little
 * (a listener on an unencrypted network can repeat it) and saves a lot: server libraries assemble a whole
 * message before they hand it over, up to the largest frame, so a caller in the handshake can make this
 * process hold that much. Without the token no caller gets further than HTTP headers, whose size is limited.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import { KintsugiError } from '../../common/errors.js';
import type { SendTerms } from './outbound.js';

const NONCE_BYTES = 32;
/** Smallest message that a peer can want to be the largest one. */
const LEAST_PIECE_BYTES = 4096;
/** Fewest bytes of a token whose proofs others can see. Random ones cannot be guessed from a proof. */
export const MIN_TOKEN_BYTES = 16;
/** Part of every mac, so that a proof of one version of the exchange is none in another. */
const CONTEXT = 'kintsugi link 1 ';

/** The header of an upgrade request that carries the gate pass. */
export const GATE_HEADER = 'kintsugi-gate';

export function gatePass(token: string): string {
  return createHmac('sha256', token).update(CONTEXT).update('gate').digest('hex');
}

/** True if the header's value opens the gate. The comparison takes the same time for every wrong value. */
export function gateOpens(given: string | undefined, token: string | undefined, nodeToken?: string): boolean {
  if (!token) return true;
  const one = sameText(given ?? '', gatePass(token));
  const other = nodeToken ? sameText(given ?? '', gatePass(nodeToken)) : false;
  return one || other;
}

/** The role that the token of a dialing side proves; undefined when one token serves all. */
export type ProvedRole = 'node' | 'client' | undefined;

export interface HandshakeStep {
  /** Message to send now. */
  send?: object;
  /** True: the other side has proved itself. `send` is sent first. */
  done: boolean;
  /** Role of the other side, when `done`. */
  proved?: ProvedRole;
  /** How the other side wants frames, when `done`; undefined: each in one message. */
  wanted?: SendTerms | undefined;
}

export interface Handshake {
  /** The first message of this side, if it speaks first. */
  start(): object | undefined;
  /** @throws UNAUTHORIZED, or BAD_FRAME for a message that does not belong here. */
  step(header: Record<string, unknown>): HandshakeStep;
}

/** `wants`: how this side wants frames. */
export function serverHandshake(token: string | undefined, nodeToken?: string, wants?: SendTerms): Handshake {
  const nonce = randomBytes(NONCE_BYTES);
  return {
    start: () => ({ t: 'challenge', nonce, auth: Boolean(token) }),
    step(header) {
      if (header.t !== 'proof') throw unexpected('proof');
      const theirs = nonceOf(header);
      if (!token) {
        // A client that insists on a proof would wait for a mac that cannot be made.
        if (header.mac !== undefined) throw unauthorized('the client has a token and this side has none');
        return { send: { t: 'ready', ...wishOf(wants) }, done: true, wanted: wantedIn(header) };
      }
      const proves = (secret: string): boolean => matches(header.mac, mac(secret, 'client', nonce, theirs));
      const isNode = nodeToken ? proves(nodeToken) : false;
      if (!isNode && !proves(token)) throw unauthorized('the token is missing or wrong');
      const own = mac(isNode ? nodeToken! : token, 'server', nonce, theirs);
      const send = { t: 'ready', mac: own, ...wishOf(wants) };
      const proved = nodeToken ? (isNode ? 'node' : 'client') : undefined;
      return { send, done: true, proved, wanted: wantedIn(header) };
    },
  };
}

/** `wants`: how this side wants frames. */
export function clientHandshake(token: string | undefined, wants?: SendTerms): Handshake {
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
        const proof = { t: 'proof', nonce, ...wishOf(wants) };
        return { send: token ? { ...proof, mac: mac(token, 'client', theirs, nonce) } : proof, done: false };
      }
      if (header.t !== 'ready') throw unexpected('ready');
      if (token && !matches(header.mac, mac(token, 'server', theirs, nonce))) {
        throw unauthorized('the other side does not know the token');
      }
      return { done: true, wanted: wantedIn(header) };
    },
  };
}

function wishOf(wants: SendTerms | undefined): { piece?: number; credit?: number } {
  if (!wants) return {};
  const { pieceBytes: piece, creditBytes: credit } = wants;
  return credit === Number.POSITIVE_INFINITY ? { piece } : { piece, credit };
}

/** @throws BAD_FRAME when frames could not be sent like that */
function wantedIn({ piece, credit }: Record<string, unknown>): SendTerms | undefined {
  if (piece === undefined) return undefined;
  const isCount = (value: unknown): value is number => Number.isSafeInteger(value);
  if (!isCount(piece) || piece < LEAST_PIECE_BYTES)
    throw new KintsugiError('BAD_FRAME', `${String(piece)} bytes are no size of a message`);
  if (credit === undefined) return { pieceBytes: piece, creditBytes: Number.POSITIVE_INFINITY };
  if (!isCount(credit) || credit < piece)
    throw new KintsugiError('BAD_FRAME', `${String(credit)} bytes are no credit for messages of ${piece}`);
  return { pieceBytes: piece, creditBytes: credit };
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
  // The input is unambiguous without separators: both roles have the same length, and nonces a fixed one.
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
