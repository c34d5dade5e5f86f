/** Census of the Pods of a job: which count, which have ended, and how. */
import type { ContainerStatus, KubeNode, ObjectCondition, Pod, Terminated } from '../objects.js';
import { type Starved, starvedOf } from './memory.js';
import { CONTAINER, INDEX_LABEL, type PodRole, ROLE_LABEL } from './names.js';
import type { JobReport, ObservedJob } from './observed.js';

/**
 * State of a Pod:
 *
 * - `active`: it runs, or is about to.
 * - `ending`: somebody deletes it. On a machine that is gone it stays so for ever.
 * - `succeeded`, `failed`: its process has ended, and is not started again in this Pod. Containers beside it
 *   may run on, or have ended in another way.
 * - `lost`: its machine does not answer, and the job has given its process up.
 */
export type MemberState = 'active' | 'ending' | 'succeeded' | 'failed' | 'lost';

export interface Member {
  pod: Pod;
  name: string;
  index: number;
  state: MemberState;
  /** True: its machine answers, or it has none yet. */
  reachable: boolean;
  ready: boolean;
  /** How its process ended; of one that runs again, how the one before it did. */
  exit?: Terminated | undefined;
  /** How often its process has begun again in this Pod. */
  restarts: number;
  /** True: its process has ended, and containers beside it have not. */
  lingers: boolean;
  /** True: its container runs, or is about to for the first time. */
  runs: boolean;
  /** Set: it was killed for want of memory, and may still be started again in its Pod. */
  starved?: Starved | undefined;
  /** True: it was ended to make room for something else. That is no failure of its own. */
  disrupted: boolean;
}

export type Census = Record<PodRole, Member[]>;

type WatchedPods = Pick<ObservedJob, 'job' | 'nodes' | 'report'>;

export function nodeReady(node: KubeNode): boolean {
  return node.status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True') ?? false;
}

function reachable(pod: Pod, nodes: readonly KubeNode[]): boolean {
  const name = pod.spec.nodeName;
  if (name === undefined) return true;
  const node = nodes.find((one) => one.metadata.name === name);
  return node !== undefined && nodeReady(node);
}

function onLostMachine(pod: Pod, nodes: readonly KubeNode[], report: JobReport | undefined): boolean {
  if (reachable(pod, nodes)) return false;
  // A machine that only Kubernetes does not hear may go on serving, and the job knows whether it does.
  return report?.nodes.some((one) => one.name === pod.metadata.name && !one.alive) ?? false;
}

/** Whether nobody hears its process, whatever the last report of its kubelet says. */
function isSilent(pod: Pod, role: PodRole, { nodes, report }: WatchedPods): boolean {
  if (!reachable(pod, nodes)) return true;
  return (
    role === 'ps' && (report?.nodes.some((one) => one.name === pod.metadata.name && !one.alive) ?? false)
  );
}

/** The container of the role. Others may stand before it. */
export const containerIn = ({ status }: Pod): ContainerStatus | undefined =>
  status?.containerStatuses?.find(({ name }) => name === CONTAINER);

const isOver = ({ status }: Pod): boolean => status?.phase === 'Succeeded' || status?.phase === 'Failed';

/** Whether another container of the Pod runs on. Without one the phase will tell the end of the Pod. */
const runsBeside = ({ status }: Pod): boolean =>
  (status?.containerStatuses ?? []).some(({ name, state }) => name !== CONTAINER && !state?.terminated);

/** How its process has ended for good; undefined: it has not. */
function endOf(pod: Pod): 'succeeded' | 'failed' | undefined {
  const { phase, reason } = pod.status ?? {};
  const exit = containerIn(pod)?.state?.terminated;
  const { restartPolicy } = pod.spec;
  if (phase === 'Succeeded') return 'succeeded';
  // A Pod that was ended as a whole has a reason: then its process was told to end.
  if (phase === 'Failed') return exit?.exitCode === 0 && !reason ? 'succeeded' : 'failed';
  if (!runsBeside(pod)) return undefined;
  if (exit?.exitCode === 0)
    return restartPolicy === 'Never' || restartPolicy === 'OnFailure' ? 'succeeded' : undefined;
  return exit && restartPolicy === 'Never' ? 'failed' : undefined;
}

function stateOf(pod: Pod, { nodes, report }: Pick<ObservedJob, 'nodes' | 'report'>): MemberState {
  if (pod.metadata.deletionTimestamp !== undefined) return 'ending';
  return endOf(pod) ?? (onLostMachine(pod, nodes, report) ? 'lost' : 'active');
}

/** Whether its process serves. Whether the Pod is ready depends on gates, too. */
export function isReady(conditions: readonly ObjectCondition[]): boolean {
  const told = (type: string) => conditions.find((one) => one.type === type)?.status;
  return (told('ContainersReady') ?? told('Ready')) === 'True';
}

/** The last end of a container; undefined: it has not ended yet, or there is none. */
export const lastExit = (container: ContainerStatus | undefined): Terminated | undefined =>
  container?.state?.terminated ?? container?.lastState?.terminated;

function memberOf(pod: Pod, role: PodRole, observed: WatchedPods): Member {
  const container = containerIn(pod);
  const conditions = pod.status?.conditions ?? [];
  const exit = lastExit(container);
  return {
    pod,
    name: pod.metadata.name,
    index: Number(pod.metadata.labels?.[INDEX_LABEL] ?? 0),
    state: stateOf(pod, observed),
    reachable: reachable(pod, observed.nodes),
    ready: isReady(conditions) && !isSilent(pod, role, observed),
    exit,
    lingers: endOf(pod) !== undefined && !isOver(pod),
    restarts: container?.restartCount ?? 0,
    runs: exit === undefined || container?.state?.running !== undefined,
    starved: role === 'scheduler' ? undefined : starvedOf(observed.job, role, pod, exit),
    disrupted:
      conditions.some((one) => one.type === 'DisruptionTarget' && one.status === 'True') ||
      ['Evicted', 'NodeShutdown', 'Terminated', 'NodeLost', 'Preempting'].includes(pod.status?.reason ?? ''),
  };
}

export function censusOf(observed: WatchedPods & Pick<ObservedJob, 'pods'>): Census {
  const census: Census = { scheduler: [], ps: [], worker: [] };
  for (const pod of observed.pods) {
    const role = pod.metadata.labels?.[ROLE_LABEL];
    if (role === 'scheduler' || role === 'ps' || role === 'worker')
      census[role].push(memberOf(pod, role, observed));
  }
  for (const members of Object.values(census)) members.sort((a, b) => a.index - b.index);
  return census;
}

export const inState = (members: readonly Member[], ...states: MemberState[]): Member[] =>
  members.filter((one) => states.includes(one.state));

/** Errors that another attempt may not meet. */
const PASSING = new Set([
  ...['UNREACHABLE', 'TIMEOUT', 'NOT_READY', 'PLACE_FAILED', 'SESSION_EXPIRED', 'STALE_NODE', 'ABORTED'],
  ...['CLOSED', 'DEPOSED', 'STORE_FAILED', 'MEMORY_LIMIT', 'PORT_IN_USE', 'SYSTEM_LIMIT'],
  // A job with one of these waits for its user (foreign.ts, guard.ts).
  ...['FOREIGN_STATE', 'STATE_LOST'],
]);

/** When the process of a Pod has begun. Milliseconds since 1970; 0: none runs, or nobody says when. */
const startedAt = ({ pod }: Member): number =>
  Date.parse(containerIn(pod)?.state?.running?.startedAt ?? '') || 0;

/**
 * Since when a member is ready. A scheduler that stands by is not, so it is the time from which one leads.
 * Milliseconds since 1970; 0: it is not, or nobody says when.
 */
export function readySince(member: Member): number {
  const ready = member.pod.status?.conditions?.find(
    ({ type }) => type === 'ContainersReady' || type === 'Ready',
  );
  const at = member.ready ? Date.parse(ready?.lastTransitionTime ?? '') || 0 : 0;
  return at || startedAt(member);
}

/** When its process has ended last. Milliseconds since 1970; 0: it has not, or nobody says when. */
export const endedAt = ({ exit }: Member): number => Date.parse(exit?.finishedAt ?? '') || 0;

/** A process that runs so long was refused by nobody. One without a probe is ready at once. */
const SERVES_MS = 10_000;

/** When a member that is ready may be taken to serve. Milliseconds since 1970. */
export const servesFrom = (member: Member): number => startedAt(member) + SERVES_MS;

/** Whether a process is ready, and not only for a moment. */
export const serves = (member: Member, now: number): boolean => member.ready && now >= servesFrom(member);

/** When the process began that has ended, if it had served. Milliseconds since 1970; 0: it had not. */
export function servedSince({ exit }: Member): number {
  const begun = Date.parse(exit?.startedAt ?? '') || 0;
  return Date.parse(exit?.finishedAt ?? '') - begun >= SERVES_MS ? begun : 0;
}

/** When the newest of those began that serve. Milliseconds since 1970; 0: none does. */
export const servesSince = (members: readonly Member[], now: number): number =>
  Math.max(0, ...members.filter((one) => serves(one, now)).map(startedAt));

const lastLine = (exit: Terminated): string => exit.message?.trim().split('\n').at(-1) ?? '';
/** Last words of the command line, and of a program in Python whose error nobody has caught. */
const LAST_ERROR = /kintsugi(?:[\w.]*\.Error)?: ([A-Z_]+): (.*)$/;

/** Code and message of the error with which a process has ended; undefined: it has named none. */
export function lastError(exit: Terminated | undefined): { code: string; message: string } | undefined {
  const [, code, message] = (exit && LAST_ERROR.exec(lastLine(exit))) ?? [];
  return code === undefined || message === undefined ? undefined : { code, message };
}

/** Whether a scheduler has settled what others of its job may have refused before it. */
export const isLed = ({ report }: Pick<ObservedJob, 'report'>, { scheduler }: Census): boolean =>
  report !== undefined || scheduler.some(({ ready }) => ready);

/**
 * The words of a scheduler that does not begin for this reason, but for its advice, which is for those who
 * start processes. Undefined: none has said so, or another one leads.
 */
export function refusalWords(
  observed: Pick<ObservedJob, 'report'>,
  census: Census,
  code: string,
): string | undefined {
  if (isLed(observed, census)) return undefined;
  const one = inState(census.scheduler, 'active', 'failed').find(
    ({ exit }) => lastError(exit)?.code === code,
  );
  return one && `${one.name}: ${lastError(one.exit)!.message.split(' What to do: ')[0]}`;
}

/**
 * The last words of a process, `CODE: message`, when no other attempt would end better. Exit code 2 is an
 * error with a code in its last line. Exit code 1, and a signal, is something that may not happen again.
 */
export function permanentProblem(exit: Terminated | undefined): string | undefined {
  if (exit?.exitCode !== 2) return undefined;
  const error = lastError(exit);
  if (!error) return lastLine(exit) || 'exit code 2';
  return PASSING.has(error.code) ? undefined : `${error.code}: ${error.message}`;
}
