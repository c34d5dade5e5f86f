/**
 * Finds the API server. In a Pod that takes two files and two variables of the environment. A kubeconfig has
 * many ways to sign in, so `@kubernetes/client-node` reads it. It is loaded only then, because it takes about
 * 70 MiB (1.4.0).
 */
import { existsSync, readFileSync } from 'node:fs';
import { Agent, type RequestOptions } from 'node:https';
import { causedBy, KintsugiError } from '../../../common/errors.js';
import { importOptional } from '../../../common/optional.js';

const PACKAGE = '@kubernetes/client-node';
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';
/**
 * Address and token are looked up again after it: tokens of Pods are replaced in time, those of users at any
 * time.
 */
const REFRESH_MS = 60_000;

/** Address, agent and headers of a request: all but its path. */
export interface ApiReach {
  host: string;
  port: number;
  /** Prefix of every path. */
  base: string;
  options: RequestOptions;
}

export interface ApiConfig {
  reach(): Promise<ApiReach>;
  /** Namespace of the Pod, or of the context of the kubeconfig. */
  namespace: string;
}

function kept(make: () => Promise<ApiReach>): () => Promise<ApiReach> {
  let at = Number.NEGATIVE_INFINITY;
  let reach: Promise<ApiReach> | undefined;
  return () => {
    if (reach && performance.now() - at < REFRESH_MS) return reach;
    at = performance.now();
    reach = make();
    reach.catch(() => {
      reach = undefined;
    });
    return reach;
  };
}

function ofPod(host: string, port: number): ApiConfig {
  const agent = new Agent({ keepAlive: true, ca: readFileSync(`${ACCOUNT}/ca.crt`) });
  return {
    namespace: readFileSync(`${ACCOUNT}/namespace`, 'utf8').trim(),
    reach: kept(async () => {
      const token = readFileSync(`${ACCOUNT}/token`, 'utf8').trim();
      return { host, port, base: '', options: { agent, headers: { authorization: `Bearer ${token}` } } };
    }),
  };
}

async function ofKubeconfig(): Promise<ApiConfig> {
  const { KubeConfig } = await importOptional<typeof import('@kubernetes/client-node')>(PACKAGE);
  const config = new KubeConfig();
  try {
    config.loadFromDefault();
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', 'the kubeconfig cannot be read');
  }
  const cluster = config.getCurrentCluster();
  if (!cluster) throw new KintsugiError('BAD_ARGUMENT', 'the kubeconfig names no cluster');
  const server = new URL(cluster.server);
  const { namespace } = config.getContextObject(config.getCurrentContext()) ?? {};
  return {
    namespace: namespace ?? 'default',
    reach: kept(async () => {
      const { agent: _, ...options }: RequestOptions = {};
      await config.applyToHTTPSOptions(options as never);
      const { ca, cert, key, rejectUnauthorized, servername } = options;
      const own = new Agent({
        ...{ keepAlive: true, ca, cert, key, rejectUnauthorized },
        ...(servername ? { servername } : {}),
      });
      const headers = options.headers as Record<string, string> | undefined;
      const port = Number(server.port || 443);
      const base = server.pathname.replace(/\/$/, '');
      return { host: server.hostname, port, base, options: { agent: own, ...(headers ? { headers } : {}) } };
    }),
  };
}

/**
 * Finds the configuration: in a Pod that of its service account, else that of KUBECONFIG or ~/.kube/config.
 * @throws DEPENDENCY_MISSING, BAD_ARGUMENT
 */
export async function findConfig(): Promise<ApiConfig> {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = '443' } = process.env;
  if (host !== undefined && !process.env.KUBECONFIG && existsSync(`${ACCOUNT}/token`))
    return ofPod(host, Number(port));
  return ofKubeconfig();
}
