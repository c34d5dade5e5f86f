/**
 * The HTTP side of a role's port, the same for both servers: which paths need which token. After the answer
 * to a GET every connection is closed, so that an idle scraper cannot hold a port that is being given up.
 *
 * The paths for liveness and readiness are open to all, because probes of orchestrators carry no secrets. All
 * other paths tell of the job and need the token of metrics as a bearer. A bearer crosses the wire in clear
 * where there is no TLS, so it is never the token of the job. Without a token of metrics these paths are open
 * on a loopback address, and refused on any other.
 */
import { codeOf, describe, type ErrorCode, KintsugiError } from '../../common/errors.js';
import { limitText } from '../../protocol/limits.js';
import { bearerMatches, isLoopback } from './auth.js';
import type { Streams } from './streams.js';
import type { HttpAnswer, HttpDetails, HttpPost, ListenOptions } from './types.js';

const OPEN_PATHS: ReadonlySet<string> = new Set(['/healthz', '/readyz']);

const text = (status: number, body: string): HttpAnswer => ({
  status,
  type: 'text/plain; charset=utf-8',
  body,
});

export interface HttpRequest extends HttpDetails {
  method: string;
  /** Path without the query. */
  path: string;
  authorization: string | undefined;
  /** The header Host. */
  host: string;
}

type HttpOptions = Pick<ListenOptions, 'host' | 'metricsToken' | 'http' | 'post'>;

/** Most bytes of bodies that a listener receives at a time; further ones are refused with 503. */
const MAX_BODIES_BYTES = 64 << 20;

/** The body of a POST that is being received. */
export class Body {
  private readonly chunks: Uint8Array[] = [];
  /** Bytes of `chunks`; `account` contains them until the end. */
  private bytes = 0;
  private ended = false;

  constructor(
    private readonly post: HttpPost,
    /** Account of all bodies of the listener. */
    private readonly account: { bytes: number },
  ) {}

  /** Adds a copy of the chunk. Returns the answer with which the body is refused; undefined: go on. */
  add(chunk: Uint8Array): HttpAnswer | undefined {
    if (this.ended) return undefined;
    const { maxBytes } = this.post;
    if (this.bytes + chunk.byteLength > maxBytes)
      return coded(413, 'LIMIT', limitText('the body is too long', 'maxBodyBytes', maxBytes));
    if (this.account.bytes + chunk.byteLength > MAX_BODIES_BYTES)
      return coded(503, 'LIMIT', limitText('too many bodies at once', 'maxBodiesBytes', MAX_BODIES_BYTES));
    this.chunks.push(new Uint8Array(chunk));
    this.bytes += chunk.byteLength;
    this.account.bytes += chunk.byteLength;
    return undefined;
  }

  /** Answers the complete body. */
  answer(type: string): HttpAnswer {
    try {
      return this.post.answer(Buffer.concat(this.chunks), type);
    } catch (error) {
      return coded(500, codeOf(error, 'INTERNAL'), describe(error));
    } finally {
      this.end();
    }
  }

  /** Drops the body, which is answered, or will not come. */
  end(): void {
    if (this.ended) return;
    this.ended = true;
    this.account.bytes -= this.bytes;
    this.chunks.length = 0;
  }
}

/** An answer with an error code, for programs. */
export function coded(status: number, code: ErrorCode, message: string): HttpAnswer {
  return { status, type: 'application/json', body: JSON.stringify({ code, message }) };
}

/** The handler of a POST of this path; undefined: there is none. */
export function postOf({ method, path }: HttpRequest, { post }: HttpOptions): HttpPost | undefined {
  return post && method.toUpperCase() === 'POST' && path === post.path ? post : undefined;
}

/** The answer with which a POST is refused before its body is read; undefined: it is not. */
export function refusalOfPost(
  { authorization }: HttpRequest,
  { token, tokenFlag }: HttpPost,
  { host }: HttpOptions,
): HttpAnswer | undefined {
  const why = bearerRefusal(authorization, token, host, tokenFlag);
  return why && coded(why.status, why.status === 401 ? 'UNAUTHORIZED' : 'TOKEN_REQUIRED', why.message);
}

export async function answerHttp(
  request: HttpRequest,
  options: HttpOptions,
  streams: Pick<Streams, 'full'>,
): Promise<HttpAnswer> {
  if (request.method.toUpperCase() !== 'GET') return text(405, 'only GET\n');
  const refused = OPEN_PATHS.has(request.path) ? undefined : refusal(request, options);
  if (refused) return refused;
  try {
    const answer = (await options.http?.(request.path, request)) ?? text(404, 'not found\n');
    return answer.stream && streams.full ? text(503, 'too many are following\n') : answer;
  } catch (error) {
    return text(500, `${describe(error)}\n`);
  }
}

function refusal({ authorization, host }: HttpRequest, options: HttpOptions): HttpAnswer | undefined {
  const { metricsToken } = options;
  const why = bearerRefusal(authorization, metricsToken, options.host, '--metrics-token-file');
  if (why) return text(why.status, `${why.message}\n`);
  // A page of a stranger may have a name of its own that leads to this machine.
  if (metricsToken || isLoopback(hostName(host))) return undefined;
  return text(403, `without a token this is for localhost only, not for "${host.slice(0, 80)}"\n`);
}

/** The name in a Host header, without the port. */
const hostName = (host: string): string => host.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');

function bearerRefusal(
  authorization: string | undefined,
  token: string | undefined,
  host: string,
  flag: string,
): { status: 401 | 403; message: string } | undefined {
  if (token && bearerMatches(authorization, token)) return undefined;
  if (token) {
    const how = 'send "Authorization: Bearer <token>"';
    return { status: 401, message: `the token of ${flag} is missing or wrong: ${how}` };
  }
  if (isLoopback(host)) return undefined;
  return { status: 403, message: `beyond loopback this needs a token: start the role with ${flag}` };
}

/** @throws BAD_ARGUMENT for tokens that would not do what they are for */
export function checkTokens({ token, nodeToken, metricsToken, post }: ListenOptions): void {
  if (post?.token && (post.token === token || post.token === nodeToken)) {
    const reason = 'the token of pulls crosses the wire, the token of the job must not';
    throw new KintsugiError('BAD_ARGUMENT', `both tokens are the same: ${reason}`);
  }
  if (metricsToken && (metricsToken === token || metricsToken === nodeToken)) {
    const reason = 'the token of metrics crosses the wire, the token of the job must not';
    throw new KintsugiError('BAD_ARGUMENT', `both tokens are the same: ${reason}`);
  }
  if (!nodeToken) return;
  if (!token) throw new KintsugiError('BAD_ARGUMENT', 'a token of nodes needs a token for clients beside it');
  if (token === nodeToken) {
    const reason = 'clients must not know the token of nodes';
    throw new KintsugiError('BAD_ARGUMENT', `both tokens are the same: ${reason}`);
  }
}
