/**
 * Objects of kinds that other software defines, where they are defined: by the Prometheus operator, and by
 * gang schedulers.
 */
import type { ObjectManifest } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { JOB_LABEL, METRICS_KEY, metaOf, ROLE_LABEL, secretName } from './names.js';
import { podGroupsOf } from './placing.js';
import { AUTHORITY_KEY, tlsName } from './tls.js';

function podMonitorOf(job: TrainingJob): ObjectManifest {
  const { metrics, tls } = job.spec;
  const meta = metaOf(job, job.metadata.name);
  const authority = { secret: { name: tls?.secretName, key: AUTHORITY_KEY } };
  return {
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PodMonitor',
    metadata: { ...meta, labels: { ...metrics?.labels, ...meta.labels } },
    spec: {
      selector: { matchLabels: { [JOB_LABEL]: job.metadata.name } },
      podTargetLabels: [JOB_LABEL, ROLE_LABEL],
      podMetricsEndpoints: [
        {
          ...{ port: 'http', path: '/metrics', interval: `${metrics?.intervalSeconds}s` },
          authorization: { credentials: { name: secretName(job), key: METRICS_KEY } },
          ...(tls ? { scheme: 'https', tlsConfig: { ca: authority, serverName: tlsName(job) } } : {}),
        },
      ],
    },
  };
}

/** `there`: kinds that the server has. */
export function extrasOf(job: TrainingJob, there: ReadonlySet<string>): ObjectManifest[] {
  const monitors = job.spec.metrics && there.has('PodMonitor') ? [podMonitorOf(job)] : [];
  const groups = podGroupsOf(job).filter(({ resource }) => there.has(resource));
  return [...monitors, ...groups.map(({ object }) => object)];
}
