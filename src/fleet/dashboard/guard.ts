/**
 * Guards the page's server. It listens on loopback, where every page in every browser of this machine can
 * send requests to it. So a host name other than loopback's is refused (DNS rebinding), and so is a page of
 * another origin. A GET changes nothing. A request that changes something needs a secret that only a reader
 * of the live data has.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** Header of a POST: the secret of this process, which is part of the live data. */
const SECRET_HEADER = 'x-kintsugi-secret';
/** Header of every request for data, in a job with a token: the key in the page's link. */
const KEY_HEADER = 'x-kintsugi-key';

/** Headers of every answer. The page loads only from this server, is in nobody's frame and sends no form. */
export const PAGE_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** Host names of loopback. Any port is right: a tunnel may have another one. */
const LOOPBACK = /^(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?$/i;

export interface PageRequest {
  method: string;
  headers: IncomingHttpHeaders;
}

/** Secrets that a request must know. */
export interface PageSecrets {
  /** Absent: the job has no token, so everybody on this machine can ask the scheduler as well. */
  key?: string | undefined;
  secret: string;
}

export interface PageRefusal {
  status: 401 | 403;
  message: string;
}

/**
 * Why a request is refused for where it comes from. Undefined: it comes from this machine, and from no page
 * but this server's.
 */
export function foreign({ headers }: PageRequest): PageRefusal | undefined {
  const { host, origin } = headers;
  if (host === undefined || !LOOPBACK.test(host))
    return { status: 403, message: 'this server answers to 127.0.0.1 and localhost only' };
  if (origin !== undefined && origin.toLowerCase() !== `http://${host.toLowerCase()}`)
    return { status: 403, message: 'another origin' };
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin' && site !== 'none')
    return { status: 403, message: 'another site' };
  return undefined;
}

/** Why a request may not read the job's data; undefined: it may. */
export function unread(ask: PageRequest, { key }: PageSecrets): PageRefusal | undefined {
  const problem = foreign(ask);
  if (problem || key === undefined || isEqual(ask.headers[KEY_HEADER], key)) return problem;
  return { status: 401, message: 'open the link that "kintsugi dashboard" prints: it holds a key' };
}

/** Why a request may not change the job; undefined: it may. */
export function unasked(ask: PageRequest, secrets: PageSecrets): PageRefusal | undefined {
  const problem = unread(ask, secrets);
  if (problem || isEqual(ask.headers[SECRET_HEADER], secrets.secret)) return problem;
  return { status: 403, message: `${SECRET_HEADER} is missing or wrong: load the page again` };
}

/** Compares in a time that does not depend on what is given. */
function isEqual(given: string | string[] | undefined, right: string): boolean {
  if (typeof given !== 'string') return false;
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(right));
}

/** The key of a job's pages: the same after a restart. The token cannot be computed from it. */
export function keyOf(token: string): string {
  return createHmac('sha256', token).update('kintsugi dashboard').digest('base64url').slice(0, 32);
}
