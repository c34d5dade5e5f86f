/**
 * What a role answers over HTTP, on the port where it takes connections: `/healthz` (200: the process lives),
 * `/readyz` (200: it serves, 503 with a reason: it does not yet) and `/metrics` (Prometheus text).
 *
 * Anybody may ask the first two, so they cost the same whatever the size of the job.
 */
import { Gauge, Registry } from 'prom-client';
import { type HttpAnswer, type Listener, type ListenOptions, listen } from '../transport/index.js';
import { parseAddress } from './address.js';

export interface EndpointOptions {
  role: string;
  name: string;
  /** Why this role does not serve yet; undefined: it serves. Must be cheap. */
  notReady(): string | undefined;
  /** name -> [help, value now, or one for each kind of message] */
  gauges: Record<string, [help: string, value: () => number | ReadonlyMap<string, number>]>;
}

export function createEndpoints(options: EndpointOptions): (path: string) => Promise<HttpAnswer> | undefined {
  const { role, name, notReady } = options;
  const registry = registryOf(options);
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
        return registry.metrics().then((body) => ({ status: 200, type: registry.contentType, body }));
      default:
        return undefined;
    }
  };
}

function registryOf({ role, name, gauges }: EndpointOptions): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ role, name });
  for (const [gauge, [help, value]] of Object.entries(gauges)) {
    new Gauge({
      name: `kintsugi_${gauge}`,
      help,
      labelNames: ['kind'],
      registers: [registry],
      collect() {
        const now = value();
        if (typeof now === 'number') this.set(now);
        else for (const [kind, count] of now) this.set({ kind }, count);
      },
    });
  }
  new Gauge({
    name: 'process_resident_memory_bytes',
    help: 'Resident memory of the process in bytes.',
    registers: [registry],
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  return registry;
}

/**
 * A port for a role that takes no connections: only its endpoints. @throws PORT_IN_USE, TOKEN_REQUIRED,
 * BAD_ARGUMENT
 */
export function serveEndpoints(
  address: string,
  options: EndpointOptions,
  secrets: Pick<ListenOptions, 'token' | 'metricsToken' | 'tls'>,
): Promise<Listener> {
  const handlers = {
    onOpen: (link: { close(reason?: string): void }) => link.close('this role takes no connections'),
    onMessage: () => {},
    onClose: () => {},
  };
  return listen({ ...parseAddress(address), ...secrets, handlers, http: createEndpoints(options) });
}
