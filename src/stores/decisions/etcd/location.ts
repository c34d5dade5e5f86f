/** Where in etcd a job is kept: `etcd://[user:password@]host:2379,host2:2379/prefix`; `etcds://` with TLS. */
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { describe, KintsugiError } from '../../../common/errors.js';

export interface EtcdOptions {
  /** With `etcds:`: authorities that the certificates of etcd are verified with; default: the public ones. */
  caFile?: string | undefined;
  /** A certificate of this client, and its key. */
  certFile?: string | undefined;
  keyFile?: string | undefined;
  /** Lease of the leader: another scheduler leads so long after the leader has died. */
  leaseMs?: number | undefined;
}

export interface Endpoint {
  host: string;
  port: number;
}

export interface EtcdLocation {
  endpoints: Endpoint[];
  user?: { name: string; password: string };
  /** Ends with a slash. */
  prefix: string;
  tls?: { ca?: Buffer; cert?: Buffer; key?: Buffer };
}

const DEFAULT_PORT = 2379;

function bad(message: string, cause?: unknown): KintsugiError {
  return new KintsugiError('BAD_ARGUMENT', message, { cause });
}

/** The URL without its password, for logs and messages; also one that is malformed. */
export function withoutPassword(url: string): string {
  return url.replace(/^(etcds?:\/\/[^:/@]*):.*@/, '$1:***@');
}

/** @throws BAD_ARGUMENT */
export function parseEtcdUrl(url: string, options: EtcdOptions = {}): EtcdLocation {
  const form = 'etcd://[user:password@]host:2379,host2:2379/prefix';
  const shown = withoutPassword(url);
  const match = /^(etcds?):\/\/(?:([^@/]+)@)?([^/@]+)\/+([\w.\-/]*[\w.-])\/*$/.exec(url);
  if (!match) throw bad(`"${shown}" is not of the form ${form}`);
  const [, scheme, credentials, hosts, prefix] = match;
  const endpoints = hosts!.split(',').map((text) => {
    const parts = /^(\[[0-9a-fA-F:]+\]|[^:\s[\]]+)(?::(\d{1,5}))?$/.exec(text);
    const port = Number(parts?.[2] ?? DEFAULT_PORT);
    if (!parts || port < 1 || port > 65_535) throw bad(`"${text}" in "${shown}" is not host:port`);
    return { host: parts[1]!.replace(/^\[|\]$/g, ''), port };
  });
  const location: EtcdLocation = { endpoints, prefix: `${prefix}/` };
  if (credentials !== undefined) {
    const colon = credentials.indexOf(':');
    if (colon < 1) throw bad(`"${shown}" names a user without a password`);
    const [name, password] = [credentials.slice(0, colon), credentials.slice(colon + 1)];
    location.user = { name: decoded(name), password: decoded(password) };
  }
  const { caFile, certFile, keyFile } = options;
  if (scheme === 'etcds') location.tls = tlsOf(options);
  else if (caFile ?? certFile ?? keyFile)
    throw bad('certificates for the store need a URL that begins with etcds://');
  return location;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw bad('the user or password of the store has a malformed % sequence');
  }
}

function tlsOf({ caFile, certFile, keyFile }: EtcdOptions): NonNullable<EtcdLocation['tls']> {
  if ((certFile === undefined) !== (keyFile === undefined))
    throw bad('a client certificate for the store needs a certificate and a key');
  const read = (what: string, file: string): Buffer => {
    try {
      return readFileSync(file);
    } catch (error) {
      throw bad(`the ${what} of the store cannot be read: ${describe(error)}`, error);
    }
  };
  const tls = {
    ...(caFile !== undefined && { ca: read('authority', caFile) }),
    ...(certFile !== undefined && { cert: read('certificate', certFile) }),
    ...(keyFile !== undefined && { key: read('key', keyFile) }),
  };
  try {
    createSecureContext(tls);
  } catch (error) {
    throw bad(`the certificates of the store cannot be used: ${describe(error)}`, error);
  }
  return tls;
}
