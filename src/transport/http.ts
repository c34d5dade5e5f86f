/**
 * The HTTP side of a role's port, the same for both servers: who may read what. After the answer to a GET
 * every connection is closed, so that an idle scraper cannot hold a port that is being given up.
 *
 * Whether a role lives and whether it serves is open to all: probes of orchestrators carry no secrets. All
 * else tells of the job and wants the token of metrics as a bearer. A bearer crosses the wire in clear where
 * there is no TLS, so it is never the token of the job. Without a token of metrics such paths are open on a
 * loopback address, and refused on any other.
 */
import { describe, type ErrorCode, KintsugiError } from '../errors.js';
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
  /** Without the query. */
  path: string;
  authorization: string | undefined;
  /** The name that was asked for. */
  host: string;
}

type HttpOptions = Pick<ListenOptions, 'host' | 'metricsToken' | 'http' | 'post'>;

/** Bytes of bodies that are being received, of all connections of a listener; beyond it 503. */
const MAX_BODIES_BYTES = 64 << 20;

/** The body of a POST on its way. */
export class Body {
  private readonly chunks: Uint8Array[] = [];
  private bytes = 0;
  private ended = false;

  constructor(
    private readonly post: HttpPost,
    /** Of all bodies together. */
    private readonly account: { bytes: number },
  ) {}

  /** The chunk is copied. Returns why no more is taken. */
  add(chunk: Uint8Array): HttpAnswer | undefined {
    if (this.ended) return undefined;
    const { maxBytes } = this.post;
    if (this.bytes + chunk.byteLength > maxBytes)
      return coded(413, 'LIMIT', `a body has at most ${maxBytes} bytes`);
    if (this.account.bytes + chunk.byteLength > MAX_BODIES_BYTES)
      return coded(503, 'LIMIT', 'too many bodies are being received');
    this.chunks.push(new Uint8Array(chunk));
    this.bytes += chunk.byteLength;
    this.account.bytes += chunk.byteLength;
    return undefined;
  }

  /** All is here. */
  answer(type: string): HttpAnswer {
    try {
      return this.post.answer(Buffer.concat(this.chunks), type);
    } catch (error) {
      return coded(500, 'INTERNAL', describe(error));
    } finally {
      this.end();
    }
  }

  /** It is not needed any more, or will not come. */
  end(): void {
    if (this.ended) return;
    this.ended = true;
    this.account.bytes -= this.bytes;
    this.chunks.length = 0;
  }
}

/** An error that programs read. */
export function coded(status: number, code: ErrorCode, message: string): HttpAnswer {
  return { status, type: 'application/json', body: JSON.stringify({ code, message }) };
}

/** How a POST of this path is answered; undefined: not at all. */
export function postOf({ method, path }: HttpRequest, { post }: HttpOptions): HttpPost | undefined {
  return post && method.toUpperCase() === 'POST' && path === post.path ? post : undefined;
}

/** Why a POST is refused before its body is read. */
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
  // A page of anybody may have a name of its own lead to this machine.
  if (metricsToken || isLoopback(hostName(host))) return undefined;
  return text(403, `without a token this is for localhost only, not for "${host.slice(0, 80)}"\n`);
}

/** Without the port. */
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
