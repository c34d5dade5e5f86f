/** What the Pods of a job are: which count, which have ended, and how. */
import type { KubeNode, Pod, Terminated } from '../objects.js';
import { INDEX_LABEL, ROLE_LABEL, type Role } from './names.js';
import type { JobReport, Observed } from './observed.js';

/**
 * - `active`: it runs, or is about to.
 * - `ending`: somebody deletes it. On a machine that is gone it stays so for ever.
 * - `succeeded`, `failed`: its process has ended, and is not started again in this Pod.
 * - `lost`: its machine does not answer, and the job has given its process up.
 */
export type MemberState = 'active' | 'ending' | 'succeeded' | 'failed' | 'lost';

export interface Member {
  pod: Pod;
  name: string;
  index: number;
  state: MemberState;
  ready: boolean;
  /** How its process ended; of one that runs again, how the one before it did. */
  exit?: Terminated | undefined;
  /** Whoever made room for something else has ended it. That is no failure of its own. */
  disrupted: boolean;
}

export type Census = Record<Role, Member[]>;

const CONTAINER = 'kintsugi';

function nodeReady(node: KubeNode): boolean {
  return node.status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True') ?? false;
}

function onLostMachine(pod: Pod, nodes: readonly KubeNode[], report: JobReport | undefined): boolean {
  const name = pod.spec.nodeName;
  if (name === undefined) return false;
  const node = nodes.find((one) => one.metadata.name === name);
  if (node && nodeReady(node)) return false;
  // A machine that only Kubernetes does not hear may go on serving: the job knows.
  return report?.nodes.some((one) => one.name === pod.metadata.name && !one.alive) ?? false;
}

function stateOf(pod: Pod, { nodes, report }: Pick<Observed, 'nodes' | 'report'>): MemberState {
  if (pod.metadata.deletionTimestamp !== undefined) return 'ending';
  if (pod.status?.phase === 'Succeeded') return 'succeeded';
  if (pod.status?.phase === 'Failed') return 'failed';
  return onLostMachine(pod, nodes, report) ? 'lost' : 'active';
}

function memberOf(pod: Pod, observed: Pick<Observed, 'nodes' | 'report'>): Member {
  const container = pod.status?.containerStatuses?.find((one) => one.name === CONTAINER);
  const conditions = pod.status?.conditions ?? [];
  return {
    pod,
    name: pod.metadata.name,
    index: Number(pod.metadata.labels?.[INDEX_LABEL] ?? 0),
    state: stateOf(pod, observed),
    ready: conditions.some((one) => one.type === 'Ready' && one.status === 'True'),
    exit: container?.state?.terminated ?? container?.lastState?.terminated,
    disrupted:
      conditions.some((one) => one.type === 'DisruptionTarget' && one.status === 'True') ||
      ['Evicted', 'NodeShutdown', 'Terminated', 'NodeLost', 'Preempting'].includes(pod.status?.reason ?? ''),
  };
}

export function censusOf(observed: Pick<Observed, 'pods' | 'nodes' | 'report'>): Census {
  const census: Census = { scheduler: [], ps: [], worker: [] };
  for (const pod of observed.pods) {
    const role = pod.metadata.labels?.[ROLE_LABEL];
    if (role === 'scheduler' || role === 'ps' || role === 'worker')
      census[role].push(memberOf(pod, observed));
  }
  for (const members of Object.values(census)) members.sort((a, b) => a.index - b.index);
  return census;
}

export const inState = (members: readonly Member[], ...states: MemberState[]): Member[] =>
  members.filter((one) => states.includes(one.state));

/** Errors that another attempt may not meet. */
const PASSING = new Set([
  ...['UNREACHABLE', 'TIMEOUT', 'NOT_READY', 'PLACE_FAILED', 'SESSION_EXPIRED', 'STALE_NODE', 'ABORTED'],
  ...['CLOSED', 'DEPOSED', 'STORE_FAILED', 'MEMORY_LIMIT', 'PORT_IN_USE'],
]);

/**
 * What a process says at its end, when no other attempt would end better: `CODE: message`. Exit code 2 is an
 * error with a code in its last line. Exit code 1, and a signal, is something that may not happen again.
 */
export function permanentProblem(exit: Terminated | undefined): string | undefined {
  if (exit?.exitCode !== 2) return undefined;
  const line = exit.message?.trim().split('\n').at(-1) ?? '';
  const [, code, message] = /kintsugi: ([A-Z_]+): (.*)$/.exec(line) ?? [];
  if (code === undefined) return line || 'exit code 2';
  return PASSING.has(code) ? undefined : `${code}: ${message}`;
}
