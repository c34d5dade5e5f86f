/** Reads the Secrets of a job. */
import type { ClientTls } from '../../net/transport/index.js';
import { type Api, hasStatus } from './api/api.js';
import type { KubeObject } from './objects.js';
import { secretName } from './reconcile/names.js';
import { AUTHORITY_KEY, tlsName } from './reconcile/tls.js';
import type { TrainingJob } from './types.js';

type SecretValues = (key: string) => string | undefined;

async function read(
  api: Pick<Api, 'get'>,
  job: TrainingJob,
  name: string,
): Promise<SecretValues | undefined> {
  try {
    const { namespace } = job.metadata;
    const { data } = await api.get<KubeObject & { data?: Record<string, string> }>('Secret', namespace, name);
    return (key) => {
      const value = data?.[key];
      return value === undefined ? undefined : Buffer.from(value, 'base64').toString('utf8');
    };
  } catch (error) {
    if (hasStatus(error, 404)) return undefined;
    throw error;
  }
}

/**
 * Token and TLS by which the operator talks with a job, as its clients do. Undefined: a Secret is not there
 * yet.
 */
export async function accessOf(
  api: Pick<Api, 'get'>,
  job: TrainingJob,
): Promise<{ token: string; tls?: ClientTls } | undefined> {
  const tokens = await read(api, job, secretName(job));
  if (!tokens) return undefined;
  const token = tokens('token') ?? '';
  if (!job.spec.tls) return { token };
  const certificates = await read(api, job, job.spec.tls.secretName);
  const ca = certificates?.(AUTHORITY_KEY);
  return ca === undefined ? undefined : { token, tls: { ca, serverName: tlsName(job) } };
}
