/** A model of what a NetworkPolicy lets through, by the rules of its API: not every cluster enforces one. */

interface LabelSelector {
  matchLabels?: Record<string, string>;
}
interface Peer {
  podSelector?: LabelSelector;
  namespaceSelector?: LabelSelector;
  ipBlock?: { cidr: string };
}
interface Rule {
  from?: Peer[];
  to?: Peer[];
  ports?: { protocol?: string; port?: number }[];
}
export interface PolicySpec {
  podSelector: LabelSelector;
  policyTypes: string[];
  ingress?: Rule[];
  egress?: Rule[];
}

/** A Pod, or an address outside of the cluster. */
export type End = { namespace: string; labels: Record<string, string> } | { ip: string };

const fits = ({ matchLabels = {} }: LabelSelector, labels: Record<string, string>): boolean =>
  Object.entries(matchLabels).every(([key, value]) => labels[key] === value);

const bits = (ip: string): number => ip.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
function inBlock(ip: string, cidr: string): boolean {
  const [first = '', length = '32'] = cidr.split('/');
  const size = 2 ** (32 - Number(length));
  return Math.floor(bits(ip) / size) === Math.floor(bits(first) / size);
}

function isPeer(peer: Peer, end: End, home: string): boolean {
  if ('ip' in end) return peer.ipBlock !== undefined && inBlock(end.ip, peer.ipBlock.cidr);
  if (peer.ipBlock) return false;
  const { namespaceSelector, podSelector = {} } = peer;
  // Namespaces carry their names as labels.
  const inNamespace = namespaceSelector
    ? fits(namespaceSelector, { 'kubernetes.io/metadata.name': end.namespace })
    : end.namespace === home;
  return inNamespace && fits(podSelector, end.labels);
}

/** Whether a Pod that the policy selects is reached by `end` (Ingress), or reaches it (Egress). */
export function lets(
  { metadata, spec }: { metadata: { namespace?: string }; spec: PolicySpec },
  way: 'Ingress' | 'Egress',
  end: End,
  port: number,
  protocol = 'TCP',
): boolean {
  // A policy that has nothing of a way leaves it open.
  if (!spec.policyTypes.includes(way)) return true;
  const rules = (way === 'Ingress' ? spec.ingress : spec.egress) ?? [];
  return rules.some(({ from, to, ports }) => {
    const peers = way === 'Ingress' ? from : to;
    const isIn = peers === undefined || peers.some((peer) => isPeer(peer, end, metadata.namespace ?? ''));
    const takes = (one: { protocol?: string; port?: number }) =>
      (one.protocol ?? 'TCP') === protocol && (one.port === undefined || one.port === port);
    return isIn && (ports === undefined || ports.some(takes));
  });
}
