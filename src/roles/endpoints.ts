/**
 * HTTP endpoints of a role, on the port where it takes connections: `/healthz` (200: the process lives),
 * `/readyz` (200: it serves, 503 with a reason: it does not yet) and `/metrics` (Prometheus text).
 *
 * Anybody may ask the first two, so they cost the same whatever the size of the job.
 */

import { parseAddress } from '../net/address.js';
import { type HttpAnswer, type Listener, type ListenOptions, listen } from '../net/transport/index.js';
import type { MetricRole } from './metrics/declared.js';
import { type Readings, scraper } from './metrics/registry.js';

export interface EndpointOptions<R extends MetricRole> {
  role: R;
  name: string;
  /** Why this role does not serve yet; undefined: it serves. Must be cheap. */
  notReady(): string | undefined;
  /** Values of the role's metrics now. Called once for each scrape. */
  metrics(): Partial<Readings<R>>;
}

export function createEndpoints<R extends MetricRole>(
  options: EndpointOptions<R>,
): (path: string) => Promise<HttpAnswer> | undefined {
  const { role, name, notReady } = options;
  const scrape = scraper(role, name, () => options.metrics());
  const json = (status: number, values: object): Promise<HttpAnswer> => {
    const body = JSON.stringify({ role, name, ...values });
    return Promise.resolve({ status, type: 'application/json', body });
  };
  return (path) => {
    switch (path) {
      case '/healthz':
        return json(200, { alive: true });
      case '/readyz': {
        const reason = notReady();
        return reason === undefined ? json(200, { ready: true }) : json(503, { ready: false, reason });
      }
      case '/metrics':
        return scrape.text().then((body) => ({ status: 200, type: scrape.type, body }));
      default:
        return undefined;
    }
  };
}

/**
 * A port for a role that takes no connections: only its endpoints. @throws PORT_IN_USE, TOKEN_REQUIRED,
 * BAD_ARGUMENT
 */
export function serveEndpoints<R extends MetricRole>(
  address: string,
  options: EndpointOptions<R>,
  secrets: Pick<ListenOptions, 'token' | 'metricsToken' | 'tls'>,
): Promise<Listener> {
  const handlers = {
    onOpen: (link: { close(reason?: string): void }) => link.close('this role takes no connections'),
    onMessage: () => {},
    onClose: () => {},
  };
  return listen({ ...parseAddress(address), ...secrets, handlers, http: createEndpoints(options) });
}
