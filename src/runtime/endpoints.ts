/** /healthz and /metrics (Prometheus text) of a role, on the port where it takes connections. */
import { Gauge, Registry } from 'prom-client';
import { type HttpAnswer, type Listener, listen, type ServerTls } from '../transport/index.js';
import { parseAddress } from './address.js';

export interface EndpointOptions {
  role: string;
  name: string;
  /** Values for /healthz; always includes `ok`. */
  health(): Record<string, unknown>;
  /** name -> [help, value now] */
  gauges: Record<string, [help: string, value: () => number]>;
}

export function createEndpoints(options: EndpointOptions): (path: string) => Promise<HttpAnswer> | undefined {
  const registry = new Registry();
  registry.setDefaultLabels({ role: options.role, name: options.name });
  for (const [name, [help, value]] of Object.entries(options.gauges)) {
    new Gauge({
      name: `kintsugi_${name}`,
      help,
      registers: [registry],
      collect() {
        this.set(value());
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
  return (path) => {
    if (path === '/healthz') {
      const body = JSON.stringify({ role: options.role, name: options.name, ...options.health() });
      return Promise.resolve({ status: 200, type: 'application/json', body });
    }
    if (path === '/metrics') {
      return registry.metrics().then((body) => ({ status: 200, type: registry.contentType, body }));
    }
    return undefined;
  };
}

/**
 * A port for a role that takes no connections: only its endpoints. @throws PORT_IN_USE, TOKEN_REQUIRED,
 * BAD_ARGUMENT
 */
export function serveEndpoints(
  address: string,
  token: string | undefined,
  options: EndpointOptions,
  tls?: ServerTls,
): Promise<Listener> {
  const handlers = {
    onOpen: (link: { close(reason?: string): void }) => link.close('this role takes no connections'),
    onMessage: () => {},
    onClose: () => {},
  };
  return listen({ ...parseAddress(address), token, tls, handlers, http: createEndpoints(options) });
}
