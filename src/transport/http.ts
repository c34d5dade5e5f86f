/**
 * The few HTTP answers of a role (health, metrics), the same for both servers. GET only; every connection is
 * closed after its answer, so that an idle scraper cannot hold a port that is being given up. With a token,
 * everything but /healthz needs it: liveness probes of orchestrators carry no secrets, metrics may tell
 * things.
 */
import { describe } from '../errors.js';
import { bearerMatches } from './auth.js';
import type { HttpAnswer, HttpHandler } from './types.js';

const text = (status: number, body: string): HttpAnswer => ({
  status,
  type: 'text/plain; charset=utf-8',
  body,
});

export async function answerHttp(
  request: { method: string; path: string; authorization: string | undefined },
  token: string | undefined,
  http: HttpHandler | undefined,
): Promise<HttpAnswer> {
  if (request.method.toUpperCase() !== 'GET') return text(405, 'only GET\n');
  if (token && request.path !== '/healthz' && !bearerMatches(request.authorization, token)) {
    return text(401, 'the token is missing or wrong: send "Authorization: Bearer <token>"\n');
  }
  try {
    return (await http?.(request.path)) ?? text(404, 'not found\n');
  } catch (error) {
    return text(500, `${describe(error)}\n`);
  }
}
