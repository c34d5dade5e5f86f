/** The NetworkPolicy of a job: who reaches its Pods, and whom they reach. */
import type { ObjectManifest } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { JOB_LABEL, metaOf, PS_PORT, SCHEDULER_PORT, WORKER_PORT } from './names.js';

const OPERATOR_LABELS = { 'app.kubernetes.io/name': 'kintsugi-operator' };
const DNS_LABELS = { 'k8s-app': 'kube-dns' };
/** Where a cache of DNS on each machine answers. */
const LOCAL_DNS = '169.254.20.10/32';

const namespaceOf = (name: string) => ({ matchLabels: { 'kubernetes.io/metadata.name': name } });

/** A Pod of a namespace, both of which have to fit. */
const podsIn = (namespace: string, matchLabels: Record<string, string>) => ({
  namespaceSelector: namespaceOf(namespace),
  podSelector: { matchLabels },
});

const DNS = {
  to: [podsIn('kube-system', DNS_LABELS), { ipBlock: { cidr: LOCAL_DNS } }],
  ports: ['UDP', 'TCP'].map((protocol) => ({ protocol, port: 53 })),
};

/**
 * Lets Pods of the job and the operator reach its Pods, and Prometheus where the job says who that is. With
 * `egress` its Pods reach each other, DNS, and what is declared there.
 */
export function networkPolicyOf(job: TrainingJob, operatorNamespace: string): ObjectManifest {
  const inside = { podSelector: { matchLabels: { [JOB_LABEL]: job.metadata.name } } };
  const { prometheus, egress } = job.spec.networkPolicy;
  const scraping = prometheus && {
    from: [podsIn(prometheus.namespace, prometheus.podLabels ?? {})],
    ports: [SCHEDULER_PORT, PS_PORT, WORKER_PORT].map((port) => ({ protocol: 'TCP', port })),
  };
  return {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: metaOf(job, job.metadata.name),
    spec: {
      ...inside,
      policyTypes: ['Ingress', ...(egress ? ['Egress'] : [])],
      ingress: [
        { from: [inside, podsIn(operatorNamespace, OPERATOR_LABELS)] },
        ...(scraping ? [scraping] : []),
      ],
      ...(egress ? { egress: [{ to: [inside] }, DNS, ...egress] } : {}),
    },
  };
}
