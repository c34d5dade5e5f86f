/** Why a job does not go on: what the API server does not take, and what its Pods wait for. */
import type { ContainerStatus, ObjectCondition, Pod, Terminated } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { type Census, inState, lastExit, type Member } from './census.js';
import { foreignCondition } from './foreign.js';
import { lostState } from './guard.js';
import { INDEX_LABEL, REPLICATED } from './names.js';
import type { Action, ObservedJob, RefusedObject } from './observed.js';
import { describeEnd } from './verdict.js';

/** The most serious first: one that a user has to mend comes before one that may pass. */
const REASONS = [
  ...([
    'ForeignState',
    'StateLost',
    'BadTemplate',
    'Queue',
    'Gang',
    'Refused',
    'Admission',
    'Quota',
    'Image',
    'Secret',
    'Config',
    'Volume',
  ] as const),
  ...(['Crashing', 'NotStarting', 'Unschedulable', 'Gated', 'EarlierJob'] as const),
];
export type StuckReason = (typeof REASONS)[number];

export interface Stuck {
  reason: StuckReason;
  message: string;
}

/** A Pod that has a machine, and no container after so long, waits for something. */
export const MOUNT_MS = 10_000;
/** A process that lives so long has served: roles that wait in vain for their job end before. */
const SERVED_MS = 15 * 60_000;
const LONGEST_MESSAGE = 1000;

const IMAGE = new Set([
  ...['ErrImagePull', 'ImagePullBackOff', 'InvalidImageName', 'ErrImageNeverPull', 'ImageInspectError'],
  ...['RegistryUnavailable', 'SignatureValidationFailed'],
]);
const OF_VOLUMES = /persistentvolumeclaim|unbound|volume node affinity/i;
/** Last words of a role that cannot write to a directory. */
const NOT_WRITABLE = /(STORE_FAILED|PLACE_FAILED|SYSTEM_LIMIT): .*\b(EACCES|EPERM|EROFS|ENOSPC|EDQUOT)\b/;
const WRITABLE_HINT =
  'a volume takes what the user of the Pod writes when securityContext.fsGroup or an init container gives ' +
  'it the right, and when there is room';

/** Reasons for which the API server has not taken something. */
const OF_SERVER: ReadonlySet<string> = new Set<StuckReason>(['Refused', 'Admission', 'Quota']);

/** The refusal that keeps the job, by its status. */
function refusalIn({ status }: TrainingJob): Stuck | undefined {
  const before = status?.conditions?.find(({ type }) => type === 'Stuck');
  const { reason = '', message = '' } = before ?? {};
  return before?.status === 'True' && OF_SERVER.has(reason)
    ? { reason: reason as StuckReason, message }
    : undefined;
}
export const wasRefused = (job: TrainingJob): boolean => refusalIn(job) !== undefined;

function refusedFor({ message }: RefusedObject): StuckReason {
  if (/(exceeded|failed) quota/.test(message)) return 'Quota';
  if (/admission webhook|violates PodSecurity|ValidatingAdmissionPolicy/.test(message)) return 'Admission';
  return 'Refused';
}

/** Whether a process has lived so long as one that serves. Undefined times: it has not. */
function lived(from: string | undefined, to: number): boolean {
  return from !== undefined && to - Date.parse(from) >= SERVED_MS;
}

/**
 * Whether a container ends again and again. The count of its restarts alone says nothing of when they were.
 */
function isCrashing({ state, restartCount }: ContainerStatus, exit: Terminated, now: number): boolean {
  if (state?.waiting?.reason === 'CrashLoopBackOff') return true;
  const end = Date.parse(exit.finishedAt ?? '');
  // A process that has ended twice before it ever served does not serve the third time without a change.
  return restartCount >= 2 && !lived(exit.startedAt, end) && !lived(state?.running?.startedAt, now);
}

/** The trouble of a container that waits, or that ends again and again. */
function ofContainer(container: ContainerStatus, now: number): Stuck | undefined {
  const { name, state, ready } = container;
  const { reason = '', message } = state?.waiting ?? {};
  const text = `${name}: ${reason}${message ? `: ${message}` : ''}`;
  if (IMAGE.has(reason)) return { reason: 'Image', message: text };
  if (reason === 'CreateContainerConfigError')
    return { reason: /secret/i.test(message ?? '') ? 'Secret' : 'Config', message: text };
  if (reason === 'CreateContainerError' || reason === 'RunContainerError')
    return { reason: 'Config', message: text };
  const exit = lastExit(container);
  if (exit === undefined || exit.exitCode === 0 || ready || !isCrashing(container, exit, now))
    return undefined;
  const said = describeEnd({ name, exit });
  return NOT_WRITABLE.test(exit.message ?? '')
    ? { reason: 'Volume', message: `${said}; ${WRITABLE_HINT}` }
    : { reason: 'Crashing', message: said };
}

const scheduled = ({ status }: Pod): ObjectCondition | undefined =>
  status?.conditions?.find(({ type }) => type === 'PodScheduled');

/** When a Pod whose containers have not begun has waited long. Undefined: they have, or it has no machine. */
export function overdueAt(pod: Pod): number | undefined {
  const { status } = pod;
  const containers = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  const begun = containers.some(
    ({ state }) => state?.running !== undefined || state?.terminated !== undefined,
  );
  const placed = scheduled(pod);
  if (pod.metadata.deletionTimestamp !== undefined || status?.phase !== 'Pending' || begun) return undefined;
  if (placed?.status !== 'True' || placed.lastTransitionTime === undefined) return undefined;
  return Date.parse(placed.lastTransitionTime) + MOUNT_MS;
}

/** The trouble that the machine of a Pod tells of in events. */
function ofMachine(said: string): Stuck {
  if (/\bsecret\b/i.test(said)) return { reason: 'Secret', message: said };
  if (/mount|attach|volume|configmap/i.test(said)) return { reason: 'Volume', message: said };
  return { reason: 'NotStarting', message: said };
}

function ofPod({ pod, name, state }: Member, { now, troubles }: ObservedJob): Stuck | undefined {
  if (state !== 'active') return undefined;
  const { initContainerStatuses = [], containerStatuses = [] } = pod.status ?? {};
  const placed = scheduled(pod);
  const said = troubles?.get(name);
  let found: Stuck | undefined;
  for (const one of [...initContainerStatuses, ...containerStatuses]) found ??= ofContainer(one, now);
  if (!found && said !== undefined && (overdueAt(pod) ?? Number.POSITIVE_INFINITY) <= now)
    found = ofMachine(said);
  if (!found && placed?.status === 'False' && placed.reason === 'Unschedulable') {
    const message = placed.message ?? 'no machine has room for it';
    found = { reason: OF_VOLUMES.test(message) ? 'Volume' : 'Unschedulable', message };
  }
  if (!found && placed?.status === 'False' && placed.reason === 'SchedulingGated')
    found = { reason: 'Gated', message: placed.message ?? 'it waits for its gates' };
  return found && { ...found, message: `${name}: ${found.message}` };
}

/**
 * Why the job does not go on; undefined: nothing keeps it. `making`: what this pass asks the API server for.
 * What it refused before, and what is not asked for any more, keeps nobody. `kept`: what keeps the operator
 * from making its Pods.
 */
export function stuckOf(
  observed: ObservedJob,
  census: Census,
  making: readonly Action[],
  kept: Partial<Record<'template' | 'gang' | 'queue' | 'earlier' | 'tokens', string | undefined>> = {},
): Stuck | undefined {
  const asked = new Set(
    making.flatMap((one) => ('object' in one ? [`${one.object.kind}/${one.object.metadata.name}`] : [])),
  );
  const found: Stuck[] = [];
  const foreign = foreignCondition(observed, census);
  if (foreign?.status === 'True') found.push({ reason: 'ForeignState', message: foreign.message ?? '' });
  const lost = lostState(observed, census);
  if (lost !== undefined) found.push({ reason: 'StateLost', message: lost });
  if (kept.template !== undefined) found.push({ reason: 'BadTemplate', message: kept.template });
  if (kept.tokens !== undefined) found.push({ reason: 'Secret', message: kept.tokens });
  if (kept.queue !== undefined) found.push({ reason: 'Queue', message: kept.queue });
  if (kept.gang !== undefined) found.push({ reason: 'Gang', message: kept.gang });
  if (kept.earlier !== undefined) found.push({ reason: 'EarlierJob', message: kept.earlier });
  for (const refusal of observed.refusals ?? []) {
    const { kind, metadata } = refusal.object;
    if (!asked.has(`${kind}/${metadata.name}`)) continue;
    found.push({ reason: refusedFor(refusal), message: `${kind} ${metadata.name}: ${refusal.message}` });
  }
  for (const member of [...census.scheduler, ...REPLICATED.flatMap((role) => census[role])]) {
    const one = ofPod(member, observed);
    if (one) found.push(one);
  }
  const rank = ({ reason }: Stuck): number => REASONS.indexOf(reason);
  const [first, ...others] = found.sort((a, b) => rank(a) - rank(b));
  // The server is asked first: until it answers the job is as stuck as its status says.
  const asks = making.some((one) => one.kind === 'try' && one.object.metadata.labels?.[INDEX_LABEL]);
  if (!first) return asks ? refusalIn(observed.job) : undefined;
  const more = others.filter(({ reason }) => reason === first.reason).length;
  const message = `${first.message.slice(0, LONGEST_MESSAGE)}${more > 0 ? ` (and ${more} more)` : ''}`;
  return { reason: first.reason, message };
}

/** The condition of a job that is stuck, or that was. */
export function stuckCondition({ status }: TrainingJob, stuck: Stuck | undefined): ObjectCondition[] {
  if (stuck) return [{ type: 'Stuck', status: 'True', ...stuck }];
  const was = status?.conditions?.some(({ type }) => type === 'Stuck');
  return was ? [{ type: 'Stuck', status: 'False', reason: 'Settled' }] : [];
}

/** Asks for a pass at which Pods that have no container yet are looked at. */
export function lookAgain({ now }: ObservedJob, census: Census): Action[] {
  const members = inState([...census.scheduler, ...census.ps, ...census.worker], 'active');
  const times = members.map(({ pod }) => overdueAt(pod)).filter((at) => at !== undefined && at > now);
  return times.length === 0 ? [] : [{ kind: 'wake', at: Math.min(...(times as number[])) }];
}

/** An event about a new reason. Refusals have events of their own. */
export function stuckTold({ job, refusals = [] }: ObservedJob, stuck: Stuck | undefined): Action[] {
  const before = job.status?.conditions?.find(({ type }) => type === 'Stuck');
  if (!stuck || (before?.status === 'True' && before.reason === stuck.reason)) return [];
  if (refusals.some(({ message }) => stuck.message.includes(message.slice(0, 100)))) return [];
  const { reason, message } = stuck;
  // The condition `ForeignState` is told by itself.
  if (reason === 'ForeignState') return [];
  return [{ kind: 'event', type: 'Warning', reason: `Stuck${reason}`, message, counted: true }];
}
