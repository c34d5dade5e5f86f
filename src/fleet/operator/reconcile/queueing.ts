/**
 * Jobs in a queue of Kueue. The operator does for a TrainingJob what Kueue's own controllers do for a Job: it
 * makes the Workload, runs the job while that is admitted, on the machines that the admission names, and
 * suspends it when it is evicted. Quota is given back when the last Pod has gone.
 *
 * A job that is not admitted is one whose spec says `suspend`, so everything else follows from that
 * (suspension.ts). An admission is a change of templates, as `PodSetInfo` of Kueue's job framework is.
 */
import { createHash } from 'node:crypto';
import type { KubeObject, ObjectCondition, ObjectManifest, PodTemplate } from '../objects.js';
import { GROUP, TRAINING_JOB, type TrainingJob } from '../types.js';
import { digested, sameAs } from './fixtures.js';
import { labelsOf, metaOf, type PodRole, ROLES, schedulersOf, wantedPs } from './names.js';
import type { Action, ObservedJob } from './observed.js';
import { QUEUE_LABEL } from './placing.js';
import { podMeta, podSpecOf } from './pods.js';
import { sameValue } from './same.js';
import { timeOf } from './time.js';

const KUEUE = 'kueue.x-k8s.io';
/** An annotation of a Workload that the operator has made inactive, because the user suspends the job. */
const DEACTIVATED = `${GROUP}/suspended`;
const TOPOLOGY_GATE = `${KUEUE}/topology`;
const UNCONSTRAINED = `${KUEUE}/podset-unconstrained-topology`;
/** A Workload with this finalizer keeps its quota until the Pods of the job have gone. */
const IN_USE = `${KUEUE}/resource-in-use`;
/** Annotations of a job with this prefix are for its requests to provision machines. */
const PROVISIONING = 'provreq.kueue.x-k8s.io/';
/** Reason of a Workload that is finished because the job cannot run as it is admitted. */
const FAILED_TO_START = 'FailedToStart';

type StringMap = Record<string, string>;
/** Fields that an admission adds to the template of a role. */
interface PodSetInfo {
  labels?: StringMap;
  annotations?: StringMap;
  nodeSelector?: StringMap;
  tolerations?: object[];
  schedulingGates?: { name: string }[];
}
interface Assignment {
  name: string;
  flavors?: StringMap;
  count?: number;
  topologyAssignment?: object | null;
}
interface PodSet {
  name: string;
  count: number;
  minCount?: number;
  template: { metadata: object; spec: object };
  topologyRequest?: object;
}
export interface QueuedWorkload extends KubeObject {
  spec: { active?: boolean; queueName?: string; podSets: PodSet[]; [other: string]: unknown };
  status?: {
    conditions?: ObjectCondition[];
    admission?: { clusterQueue?: string; podSetAssignments?: Assignment[] } | null;
    admissionChecks?: { name: string; podSetUpdates?: (PodSetInfo & { name: string })[] }[];
    reclaimablePods?: { name: string; count: number }[];
    [other: string]: unknown;
  };
}

/** How a job stands with its queue. */
export interface Queueing {
  workload: QueuedWorkload | undefined;
  admitted: boolean;
  /** The job as its user wrote it. */
  given: TrainingJob;
  /** Why it cannot be in the queue. */
  problem: string | undefined;
  /** Why it cannot run as it is admitted. Another attempt would end in the same way. */
  contradiction?: string | undefined;
}

const conditionOf = (workload: QueuedWorkload | undefined, type: string) =>
  workload?.status?.conditions?.find((one) => one.type === type);
const isTrue = (workload: QueuedWorkload | undefined, type: string): boolean =>
  conditionOf(workload, type)?.status === 'True';
const isLeaving = (workload: QueuedWorkload | undefined): boolean =>
  workload?.metadata.deletionTimestamp !== undefined;
/** Whether a Workload is held for its job. */
export const isInUse = ({ metadata }: KubeObject): boolean => metadata.finalizers?.includes(IN_USE) ?? false;
/** The Workload as it is when nobody holds it for the job. */
export function released<T extends KubeObject>(workload: T): T {
  const finalizers = workload.metadata.finalizers?.filter((one) => one !== IN_USE) ?? [];
  return { ...workload, metadata: { ...workload.metadata, finalizers } };
}

function workloadOf({ owned, job }: ObservedJob): QueuedWorkload | undefined {
  const name = workloadName(job);
  return owned.find(
    ({ apiVersion, kind, metadata }) =>
      kind === 'Workload' && apiVersion.startsWith(`${KUEUE}/`) && metadata.name === name,
  ) as QueuedWorkload | undefined;
}

/** The name that Kueue's job framework would give it: kind, job, and a hash of both and of the uid. */
function workloadName({ metadata: { name, uid = '' } }: TrainingJob): string {
  const hash = createHash('sha1').update([TRAINING_JOB.kind, GROUP, name, uid].join('\n')).digest('hex');
  return `${TRAINING_JOB.singular}-${name}`.slice(0, 63 - 6).concat('-', hash.slice(0, 5));
}

/** The template of the user and the admission want two values of one key. */
class Contradiction extends Error {}

function merged(role: PodRole, what: string, base: StringMap = {}, more: StringMap = {}): StringMap {
  for (const [key, value] of Object.entries(more))
    if (base[key] !== undefined && base[key] !== value)
      throw new Contradiction(
        `the admission wants ${what} ${key}=${value} for ${role}, and the template has ${base[key]}`,
      );
  return { ...base, ...more };
}

/** The template with what the admission adds. Throws where they contradict each other, as Kueue refuses. */
function withInfo(role: PodRole, template: PodTemplate = {}, info: PodSetInfo): PodTemplate {
  const { metadata = {}, spec = {} } = template;
  const { nodeSelector, schedulingGates = [] } = spec as PodSetInfo;
  const gates = info.schedulingGates?.filter(({ name }) => !schedulingGates.some((one) => one.name === name));
  return {
    metadata: {
      ...metadata,
      labels: merged(role, 'the label', metadata.labels, info.labels),
      annotations: merged(role, 'the annotation', metadata.annotations, info.annotations),
    },
    spec: {
      ...spec,
      nodeSelector: merged(role, 'the node selector', nodeSelector, info.nodeSelector),
      tolerations: [...(spec.tolerations ?? []), ...((info.tolerations ?? []) as object[])],
      ...(gates?.length ? { schedulingGates: [...schedulingGates, ...gates] } : {}),
    },
  };
}

/** Fields that an assignment and the admission checks add to Pods of a role. */
function infosOf(
  workload: QueuedWorkload,
  assignment: Assignment,
  flavors: readonly KubeObject[],
): PodSetInfo[] {
  const { name, topologyAssignment } = assignment;
  const specOf = (flavor: string): { nodeLabels?: StringMap; tolerations?: object[] } => {
    const found = flavors.find(({ metadata }) => metadata.name === flavor);
    if (!found) throw new Error(`the admission names the ResourceFlavor ${flavor}, which is not there`);
    return (found as ObjectManifest).spec as object;
  };
  const request = workload.spec.podSets.find((one) => one.name === name)?.topologyRequest;
  const checks = workload.status?.admissionChecks ?? [];
  return [
    {
      labels: { [`${KUEUE}/podset`]: name },
      annotations: {
        [`${KUEUE}/workload`]: workload.metadata.name,
        ...(topologyAssignment && !request ? { [UNCONSTRAINED]: 'true' } : {}),
      },
      ...(topologyAssignment ? { schedulingGates: [{ name: TOPOLOGY_GATE }] } : {}),
    },
    ...[...new Set(Object.values(assignment.flavors ?? {}))].map(specOf).map((flavor) => ({
      nodeSelector: flavor.nodeLabels ?? {},
      tolerations: flavor.tolerations ?? [],
    })),
    ...checks.flatMap(({ podSetUpdates = [] }) => podSetUpdates.filter((one) => one.name === name)),
  ];
}

/** The job as it is admitted: no more Pods than that, where the admission says. */
function admittedJob(
  job: TrainingJob,
  workload: QueuedWorkload,
  flavors: readonly KubeObject[],
): TrainingJob {
  const roles = { ...job.spec.replicaSpecs } as Record<PodRole, Record<string, unknown>>;
  for (const assignment of workload.status?.admission?.podSetAssignments ?? []) {
    const role = ROLES.find((one) => one === assignment.name);
    if (!role) continue;
    let template = roles[role].template as PodTemplate | undefined;
    for (const info of infosOf(workload, assignment, flavors)) template = withInfo(role, template, info);
    const { count } = assignment;
    const { maxReplicas = count } = roles[role] as { maxReplicas?: number };
    const own = role === 'ps' ? wantedPs(job) : job.spec.replicaSpecs.worker.replicas;
    const most =
      role === 'scheduler' || count === undefined
        ? {}
        : { replicas: Math.min(own, count), maxReplicas: Math.min(maxReplicas ?? count, count) };
    roles[role] = { ...roles[role], template, ...most };
  }
  return { ...job, spec: { ...job.spec, replicaSpecs: roles as never } };
}

const reserved = (workload: QueuedWorkload | undefined): boolean => isTrue(workload, 'QuotaReserved');
const label = ({ metadata }: TrainingJob, key: string): string | undefined => metadata.labels?.[key];
const NEEDS_PLACE =
  'a job in a queue of Kueue needs spec.checkpoint: it goes on with a checkpoint after it was evicted';
const NO_KUEUE =
  'the job has the label kueue.x-k8s.io/queue-name, and the cluster has no Workload of ' +
  'kueue.x-k8s.io/v1beta2: Kueue 0.15 or later is not installed, or the operator may not see it';

function priorityProblem({ job, priorities = [] }: ObservedJob): string | undefined {
  const wanted = label(job, `${KUEUE}/priority-class`);
  if (wanted === undefined || priorities.some(({ metadata }) => metadata.name === wanted)) return undefined;
  return `the label kueue.x-k8s.io/priority-class names ${wanted}, which is no WorkloadPriorityClass`;
}

/** The job as its queue has it run. Without a queue it is as it was. */
export function queueingOf(observed: ObservedJob): { job: TrainingJob; queue: Queueing | undefined } {
  const { job, extras, flavors = [] } = observed;
  const workload = workloadOf(observed);
  const external = job.spec.runPolicy.schedulingPolicy?.admission === 'External';
  // A job whose label is taken away stays in its queue as long as it has the quota of it.
  if (external || (label(job, QUEUE_LABEL) === undefined && !reserved(workload)))
    return { job, queue: undefined };
  let problem = extras?.has('Workload') ? undefined : NO_KUEUE;
  if (!job.spec.checkpoint) problem ??= NEEDS_PLACE;
  problem ??= workload ? undefined : priorityProblem(observed);
  let runs = job;
  let contradiction: string | undefined;
  const { status } = workload ?? {};
  const finished = conditionOf(workload, 'Finished');
  if (finished?.status === 'True' && finished.reason === FAILED_TO_START) problem ??= finished.message;
  else if (workload && status?.admission)
    try {
      runs = admittedJob(job, workload, flavors);
    } catch (error) {
      problem ??= (error as Error).message;
      if (error instanceof Contradiction && isTrue(workload, 'Admitted')) contradiction = problem;
    }
  const ends = isTrue(workload, 'Evicted') || isTrue(workload, 'Finished') || isLeaving(workload);
  const open = isTrue(workload, 'Admitted') && !ends;
  const admitted = problem === undefined && open && status?.admission != null;
  const suspend = runs.spec.runPolicy.suspend || !admitted;
  runs = { ...runs, spec: { ...runs.spec, runPolicy: { ...runs.spec.runPolicy, suspend } } };
  return { job: runs, queue: { workload, admitted, given: job, problem, contradiction } };
}

function topologyRequest({ annotations = {} }: { annotations?: StringMap }): object {
  for (const kind of ['required', 'preferred'] as const) {
    const level = annotations[`${KUEUE}/podset-${kind}-topology`];
    if (level !== undefined) return { topologyRequest: { [kind]: level } };
  }
  return annotations[UNCONSTRAINED] === 'true' ? { topologyRequest: { unconstrained: true } } : {};
}

function podSetsOf(job: TrainingJob): PodSet[] {
  const { worker } = job.spec.replicaSpecs;
  const counts = { scheduler: schedulersOf(job), ps: wantedPs(job), worker: worker.replicas };
  // Kueue admits fewer of one role at most.
  const least = worker.minReplicas;
  const fewer = least !== undefined && least > 0 && least < worker.replicas ? { minCount: least } : {};
  return ROLES.filter((role) => counts[role] > 0).map((name) => {
    const { labels, annotations } = podMeta(job, name, { name, labels: labelsOf(job, name) });
    const metadata = { labels, ...(annotations ? { annotations } : {}) };
    const template = { metadata, spec: podSpecOf(job, name) };
    const request = topologyRequest(annotations ? { annotations } : {});
    return { name, count: counts[name], ...(name === 'worker' ? fewer : {}), template, ...request };
  });
}

function priorityOf({ job, priorities = [] }: Pick<ObservedJob, 'job' | 'priorities'>): object {
  const name = label(job, `${KUEUE}/priority-class`);
  const found = priorities.find(({ metadata }) => metadata.name === name) as { value?: number } | undefined;
  if (name === undefined || found?.value === undefined) return {};
  return {
    priorityClassRef: { group: KUEUE, kind: 'WorkloadPriorityClass', name },
    priority: found.value,
  };
}

function manifestOf(
  { given, workload }: Queueing,
  spec: object,
  active: boolean | undefined,
  annotations: StringMap = {},
): ObjectManifest {
  const meta = metaOf(given, workload?.metadata.name ?? workloadName(given));
  const labels = { ...meta.labels, [`${KUEUE}/job-uid`]: given.metadata.uid ?? '' };
  const provisioning = Object.entries(given.metadata.annotations ?? {}).filter(([key]) =>
    key.startsWith(PROVISIONING),
  );
  const all = { ...Object.fromEntries(provisioning), ...annotations };
  return digested({
    apiVersion: `${KUEUE}/v1beta2`,
    kind: 'Workload',
    metadata: {
      ...{ ...meta, labels, finalizers: [IN_USE] },
      ...(Object.keys(all).length > 0 ? { annotations: all } : {}),
    },
    spec: { ...spec, ...(active === undefined ? {} : { active }) },
  });
}

/**
 * The Workload, where it is not as it should be. While quota is reserved all but `active` and the priority is
 * fixed. Another one is made when no Pod is left of those that had the quota of the last.
 */
function applied(observed: ObservedJob, queue: Queueing, gone: boolean): Action[] {
  const { given, workload, problem } = queue;
  const { suspend } = given.spec.runPolicy;
  const apply = (object: ObjectManifest): Action[] =>
    workload && sameAs(object, [workload]) ? [] : [{ kind: 'apply', object }];
  // A job that its user suspends before it is in the queue does not go there.
  if (!workload && (problem !== undefined || suspend || !gone)) return [];
  if (isLeaving(workload))
    return gone && isInUse(workload!) ? [{ kind: 'release', workload: workload! }] : [];
  const ours = workload?.metadata.annotations?.[DEACTIVATED] !== undefined;
  const active = suspend ? false : ours ? true : workload?.spec.active;
  const annotations: StringMap = suspend ? { [DEACTIVATED]: 'true' } : {};
  const priority = priorityOf({ ...observed, job: given });
  const failed = workload && isTrue(workload, 'Finished');
  if (workload && !failed && reserved(workload)) {
    // Kueue's custom resource takes another class meanwhile, and neither a first one nor none.
    const other = workload.spec.priorityClassRef === undefined ? {} : priority;
    const raised = Object.entries(other).some(([key, value]) => !sameValue(workload.spec[key], value));
    if (suspend === ours && !raised) return [];
    return apply(manifestOf(queue, { ...workload.spec, ...other }, active, annotations));
  }
  const seconds = Number(label(given, `${KUEUE}/max-exec-time-seconds`));
  const spec = {
    queueName: label(given, QUEUE_LABEL) ?? workload?.spec.queueName,
    podSets: podSetsOf(given),
    ...priority,
    ...(seconds > 0 ? { maximumExecutionTimeSeconds: seconds } : {}),
  };
  const wanted = manifestOf(queue, spec, active, annotations);
  if (!failed) return apply(wanted);
  // A job that could not run as it was admitted queues anew when it was changed.
  if (!gone || sameAs(wanted, [workload])) return [];
  return [{ kind: 'delete', object: workload }];
}

const READY = 'All pods reached readiness and the workload is running';
const NOT_READY = 'Not all pods are ready or succeeded';
/** Reasons of an eviction after which the Workload queues again at once. Others wait for Kueue. */
const REQUEUED: ReadonlySet<string> = new Set(['Preempted', 'NodeFailures']);

interface Progress {
  /** True: no Pod of the job is left. */
  gone: boolean;
  /** All Pods have served together in this life. */
  ready: boolean;
  /** Workers that have ended well. */
  finished: number;
  /** Outcome of a job that has ended. */
  outcome?: { succeeded: boolean; message: string } | undefined;
}

/** The status of the Workload, where the operator has to say something new. */
function told(queue: Queueing, progress: Progress, now: number): Action[] {
  const { workload, admitted } = queue;
  if (!workload || isLeaving(workload)) return [];
  if (isTrue(workload, 'Finished')) return isInUse(workload) ? [{ kind: 'release', workload }] : [];
  const before = workload.status ?? {};
  const conditions = new Map(before.conditions?.map((one) => [one.type, one]));
  const observedGeneration = workload.metadata.generation ?? 0;
  let changed = false;
  const say = (type: string, status: boolean, reason: string, message: string): void => {
    const old = conditions.get(type);
    const value = status ? 'True' : 'False';
    if (old?.status === value && old.reason === reason) return;
    const at = timeOf(now);
    const lastTransitionTime = old?.status === value ? (old.lastTransitionTime ?? at) : at;
    conditions.set(type, { type, status: value, reason, message, lastTransitionTime, observedGeneration });
    changed = true;
  };
  let { admission, reclaimablePods } = before;
  const { outcome, gone, ready, finished } = progress;
  const evicted = conditionOf(workload, 'Evicted');
  if (outcome) {
    say('Finished', true, outcome.succeeded ? 'Succeeded' : 'Failed', outcome.message.slice(0, 1024));
  } else if (queue.contradiction !== undefined) {
    say('Finished', true, FAILED_TO_START, queue.contradiction.slice(0, 1024));
  } else if (evicted?.status === 'True' && reserved(workload)) {
    if (!gone) return [];
    const { reason = 'Evicted', message = '' } = evicted;
    say('Requeued', REQUEUED.has(reason), reason, message);
    say('QuotaReserved', false, 'Pending', message);
    say('Admitted', false, 'NoReservation', 'The workload has no reservation');
    say('PodsReady', false, 'WaitForStart', NOT_READY);
    admission = undefined;
    reclaimablePods = undefined;
  } else if (admitted) {
    if (ready) say('PodsReady', true, 'Started', READY);
    else if (!isTrue(workload, 'PodsReady')) say('PodsReady', false, 'WaitForStart', NOT_READY);
    const old = reclaimablePods?.find(({ name }) => name === 'worker')?.count ?? 0;
    const most = workload.spec.podSets.find(({ name }) => name === 'worker')?.count ?? 0;
    const count = Math.min(most, finished);
    if (count > old) {
      reclaimablePods = [{ name: 'worker', count }];
      changed = true;
    }
  }
  if (!changed) return [];
  const { admission: _, reclaimablePods: __, ...rest } = before;
  const status = {
    ...rest,
    conditions: [...conditions.values()],
    ...(admission ? { admission } : {}),
    ...(reclaimablePods ? { reclaimablePods } : {}),
  };
  return [{ kind: 'queueStatus', workload, status }];
}

/** A Workload that somebody deletes when its job has ended. */
function leaving({ workload }: Queueing): Action[] {
  return workload && isLeaving(workload) && isInUse(workload) ? [{ kind: 'release', workload }] : [];
}

/** Actions for the Workload of a job. */
export function queueSteps(observed: ObservedJob, queue: Queueing | undefined, progress: Progress): Action[] {
  if (!queue) return [];
  const changes = progress.outcome ? leaving(queue) : applied(observed, queue, progress.gone);
  const refused = observed.refusals?.some(({ object }) => object.kind === 'Workload') ?? false;
  // A status is written on the version that was observed. A change that is refused does not keep it back:
  // it gives quota back.
  if (changes.length > 0 && !refused) return changes;
  return [...told(queue, progress, observed.now), ...changes];
}

/** Roles of which the job wants more than are admitted: it gets them when it is admitted anew. */
function lacking({ given, workload }: Queueing): string {
  const wanted = new Map([
    ['ps', wantedPs(given)],
    ['worker', given.spec.replicaSpecs.worker.replicas],
  ]);
  return (workload?.status?.admission?.podSetAssignments ?? [])
    .filter(({ name, count }) => count !== undefined && count < (wanted.get(name) ?? 0))
    .map(({ name, count }) => `, ${count} of ${wanted.get(name)} ${name}`)
    .join('');
}

/** The condition of a job in a queue. */
export function queueCondition(queue: Queueing | undefined): ObjectCondition[] {
  if (!queue) return [];
  const { workload, admitted, problem } = queue;
  const type = 'Admitted';
  const by = workload?.status?.admission?.clusterQueue ?? '';
  const message = `by the cluster queue ${by}${lacking(queue)}`;
  if (admitted) return [{ type, status: 'True', reason: 'ByKueue', message }];
  const no = (reason: string, why = ''): ObjectCondition[] => [
    { type, status: 'False', reason, ...(why ? { message: why } : {}) },
  ];
  if (problem !== undefined) return no('Refused', problem);
  const evicted = conditionOf(workload, 'Evicted');
  if (evicted?.status === 'True') return no('Evicted', `${evicted.reason}: ${evicted.message}`);
  return no('Waiting', conditionOf(workload, 'QuotaReserved')?.message ?? 'it waits in its queue');
}
