/**
 * TLS of both sides: reads the files, and reports a problem with them in one line. A server shows a
 * certificate. A client verifies the certificate, against a private CA if it is given one, and checks that
 * the name it dialed is in it. Clients show no certificate: the token proves who they are, inside the
 * encrypted connection.
 *
 * With TLS the server is always `ws` on node:https, never uWebSockets.js, which loses connections then: with
 * frames of 100 KB both ways at once within a second, every time it was tried. Its source explains it: in
 * uSockets (`openssl.c`, also in the newest release) a write forgets received bytes that are not yet
 * decrypted, and a write can come while data is being handed over, when more than half a MiB arrived at once.
 * The next record does not decrypt and the connection is closed. No wrong byte is delivered, but a node under
 * load would lose its links again and again. The test "carries large frames both ways at once" must pass
 * before this is changed.
 */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { type ConnectionOptions, checkServerIdentity, createSecureContext } from 'node:tls';
import { causedBy, describe } from '../../common/errors.js';
import type { OptionKeys } from '../../common/options.js';

/** The certificate that a listener shows. PEM files, read once: a new certificate needs a new listener. */
export interface ServerTls {
  /** The certificate, then the intermediate ones if there are any. */
  certFile: string;
  /** The private key of the certificate, not encrypted. */
  keyFile: string;
}

/** Options with which a client verifies the server. The PEM file is read again for every connection. */
export interface ClientTls {
  /** Only certificates of these authorities are accepted; default: the public ones that Node knows. */
  caFile?: string | undefined;
  /** The authorities as text (PEM) instead of a file. */
  ca?: string | undefined;
  /** The name or IP address that must be in the certificate; default: the host that is dialed. */
  serverName?: string | undefined;
}

/** A role that listens and dials. */
export type RoleTls = ServerTls & ClientTls;

export const CLIENT_TLS = { caFile: true, ca: true, serverName: true } satisfies OptionKeys<ClientTls>;
export const ROLE_TLS = { ...CLIENT_TLS, certFile: true, keyFile: true } satisfies OptionKeys<RoleTls>;

export const MIN_TLS_VERSION = 'TLSv1.2' as const;

function read(what: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', `the ${what} cannot be read`);
  }
}

/** @throws BAD_ARGUMENT for files that are missing, not PEM, or do not belong together */
export function readServerTls({ certFile, keyFile }: ServerTls): { cert: Buffer; key: Buffer } {
  const cert = read('TLS certificate', certFile);
  const key = read('TLS key', keyFile);
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    const text = `the TLS certificate ${certFile} and the key ${keyFile} cannot be used`;
    throw causedBy(error, 'BAD_ARGUMENT', text);
  }
  return { cert, key };
}

/** Options for `tls.connect`. @throws BAD_ARGUMENT for a CA file that is missing or holds no certificate */
export function clientTlsOptions({ caFile, ca, serverName }: ClientTls, host: string): ConnectionOptions {
  const name = serverName ?? host;
  const authorities = caFile === undefined ? ca : read('TLS authority', caFile);
  return {
    ...(authorities === undefined
      ? {}
      : { ca: checkAuthorities(authorities, caFile ?? 'the TLS authority') }),
    // Set explicitly, so that NODE_TLS_REJECT_UNAUTHORIZED in the environment cannot switch it off.
    rejectUnauthorized: true,
    minVersion: MIN_TLS_VERSION,
    // An address has no place in the name indication (RFC 6066), but may be in the certificate.
    servername: isIP(name) ? '' : name,
    checkServerIdentity: (_, certificate) => checkServerIdentity(name, certificate),
  };
}

/**
 * Checks a list of authorities. Node ignores the parts that it does not understand, and would then trust no
 * server.
 */
function checkAuthorities<T extends Buffer | string>(ca: T, where: string): T {
  try {
    new X509Certificate(ca);
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', `${where} holds no certificate`);
  }
  return ca;
}

/** Error codes of OpenSSL and Node for certificates that are not to be trusted. */
const DISTRUST = new RegExp(
  '^(ERR_TLS_CERT_|CERT_|UNABLE_TO_(GET|VERIFY|DECRYPT|DECODE)_|SELF_SIGNED_|DEPTH_ZERO_|' +
    'INVALID_(CA|PURPOSE)|HOSTNAME_)',
);

/** The reason why a certificate was refused; undefined for any other failure. */
export function distrust(error: unknown): string | undefined {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' && DISTRUST.test(code) ? describe(error) : undefined;
}
