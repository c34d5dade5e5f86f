/** TLS of a job: its Secret in every Pod, and the flags and variables of roles. */
import type { Container, EnvVar } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { schedulerName } from './names.js';

const VOLUME = 'tls';
const DIR = '/etc/kintsugi/tls';
/** Keys of the Secret, as cert-manager and `kubectl create secret tls` write them. */
export const AUTHORITY_KEY = 'ca.crt';

/** Pods are dialed by addresses that nobody knows ahead: one name is in the certificate for all of them. */
export const tlsName = (job: TrainingJob): string =>
  job.spec.tls?.serverName ?? `${schedulerName(job)}.${job.metadata.namespace}.svc`;

/** A program of the user's own finds the authority and the name there, too. */
export const tlsEnvironment = (job: TrainingJob): EnvVar[] =>
  job.spec.tls
    ? [
        { name: 'KINTSUGI_TLS_CA', value: `${DIR}/${AUTHORITY_KEY}` },
        { name: 'KINTSUGI_TLS_NAME', value: tlsName(job) },
      ]
    : [];

export const tlsFlags = ({ spec }: TrainingJob): string[] =>
  spec.tls ? ['--tls-cert', `${DIR}/tls.crt`, '--tls-key', `${DIR}/tls.key`] : [];

export const tlsVolumes = ({ spec }: TrainingJob): { name: string }[] =>
  spec.tls ? [{ name: VOLUME, secret: { secretName: spec.tls.secretName } } as { name: string }] : [];

export const tlsMounts = ({ spec }: TrainingJob): NonNullable<Container['volumeMounts']> =>
  spec.tls ? [{ name: VOLUME, mountPath: DIR, readOnly: true } as { name: string; mountPath: string }] : [];
