/**
 * The HTTP side of a role's port, the same for both servers: who may read what. GET only. Every connection is
 * closed after its answer, so that an idle scraper cannot hold a port that is being given up.
 *
 * Whether a role lives and whether it serves is open to all: probes of orchestrators carry no secrets. All
 * else tells of the job and wants the token of metrics as a bearer. A bearer crosses the wire in clear where
 * there is no TLS, so it is never the token of the job. Without a token of metrics such paths are open on a
 * loopback address, and refused on any other.
 */
import { describe, KintsugiError } from '../errors.js';
import { bearerMatches, isLoopback } from './auth.js';
import type { HttpAnswer, ListenOptions } from './types.js';

const OPEN_PATHS: ReadonlySet<string> = new Set(['/healthz', '/readyz']);

const text = (status: number, body: string): HttpAnswer => ({
  status,
  type: 'text/plain; charset=utf-8',
  body,
});

export interface HttpRequest {
  method: string;
  /** Without the query. */
  path: string;
  authorization: string | undefined;
}

type HttpOptions = Pick<ListenOptions, 'host' | 'metricsToken' | 'http'>;

export async function answerHttp(request: HttpRequest, options: HttpOptions): Promise<HttpAnswer> {
  if (request.method.toUpperCase() !== 'GET') return text(405, 'only GET\n');
  const refused = OPEN_PATHS.has(request.path) ? undefined : refusal(request.authorization, options);
  if (refused) return refused;
  try {
    return (await options.http?.(request.path)) ?? text(404, 'not found\n');
  } catch (error) {
    return text(500, `${describe(error)}\n`);
  }
}

function refusal(authorization: string | undefined, options: HttpOptions): HttpAnswer | undefined {
  const { host, metricsToken } = options;
  if (metricsToken) {
    if (bearerMatches(authorization, metricsToken)) return undefined;
    return text(401, 'the token of metrics is missing or wrong: send "Authorization: Bearer <token>"\n');
  }
  if (isLoopback(host)) return undefined;
  return text(403, 'beyond loopback this needs a token: start the role with --metrics-token-file\n');
}

/** @throws BAD_ARGUMENT for tokens that would not do what they are for */
export function checkTokens({ token, nodeToken, metricsToken }: ListenOptions): void {
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
