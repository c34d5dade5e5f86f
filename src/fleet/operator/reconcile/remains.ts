/**
 * Keys in etcd of a job that is deleted. A claim goes with its StatefulSet. A Pod removes keys, because it
 * has the network and the certificates of a scheduler, and the operator has neither. A finalizer holds the
 * job until that is done. Keys that say that they are another job's stay.
 */
import type { ObjectManifest, Pod } from '../objects.js';
import { GROUP, type TrainingJob } from '../types.js';
import { stranded } from './apart.js';
import { type Census, containerIn, lastExit, permanentProblem } from './census.js';
import { deletion } from './deletion.js';
import { fixturesOf, sameAs } from './fixtures.js';
import { CONTAINER, commandOf, labelsOf, ROLE_LABEL, schedulerName } from './names.js';
import type { Action, ObservedJob } from './observed.js';
import { podMeta, podSpecOf } from './pods.js';
import { beginningOf, begun } from './status.js';
import { here } from './suspension.js';

export const STATE_FINALIZER = `${GROUP}/state`;
const REMOVAL_ROLE = 'removal';
/** After so long the job goes without: its etcd is away, or its namespace goes and takes no more Pods. */
const LIMIT_MS = 120_000;
/** Seconds in which a process of a deleted job ends: it has nothing to hand over. */
const ENDED_GRACE_SECONDS = 1;

export const isHeld = ({ metadata }: TrainingJob): boolean =>
  metadata.finalizers?.includes(STATE_FINALIZER) ?? false;

/** Whether the keys of the job are removed when it is deleted. */
function keysGo(job: TrainingJob): boolean {
  const { etcd, deletionPolicy } = job.spec.scheduler.store;
  const ownProgram = commandOf(job, 'scheduler') !== undefined;
  return etcd !== undefined && deletionPolicy === 'Delete' && !ownProgram;
}

/** Holds the job before its scheduler can write anything. */
export const holding = (job: TrainingJob): Action[] =>
  keysGo(job) && !isHeld(job) ? [{ kind: 'hold', held: true }] : [];

/** Whether a Pod has not been told to end, or has longer for that than it needs. */
const isStill = ({ metadata }: Pod): boolean =>
  metadata.deletionTimestamp === undefined ||
  (metadata.deletionGracePeriodSeconds ?? 0) > ENDED_GRACE_SECONDS;

const removalName = ({ metadata }: TrainingJob): string =>
  `${metadata.name}-${REMOVAL_ROLE}-${(metadata.uid ?? '').slice(0, 8)}`;

/** Whether a Pod removes keys of a job of this name. It has no owner. */
export const isRemoval = ({ metadata }: Pod, name: string): boolean =>
  metadata.labels?.[ROLE_LABEL] === REMOVAL_ROLE && metadata.name.startsWith(`${name}-${REMOVAL_ROLE}-`);

/** Tokens: their Secret may be gone before the Pod begins, and it needs none. */
const TOKENS: ReadonlySet<string> = new Set([
  ...['KINTSUGI_TOKEN', 'KINTSUGI_NODE_TOKEN', 'KINTSUGI_METRICS_TOKEN'],
]);

/**
 * The Pod that removes what all lives of the job have written. It has no owner: where a job is deleted after
 * what it owns, this Pod must outlive that.
 */
function removalOf(job: TrainingJob): ObjectManifest {
  const lives = Array.from({ length: (job.status?.life ?? 1) - 1 }, (_, index) => `life-${index + 2}`);
  const spec = podSpecOf(job, 'scheduler', { startPs: 1, life: 1 });
  const containers = (spec.containers ?? [])
    .filter(({ name }) => name === CONTAINER)
    .map(({ readinessProbe: _, ports: __, env = [], args = [], ...container }) => ({
      ...container,
      env: env.filter(({ name }) => !TOKENS.has(name)),
      args: [...args, `--remove-state=${lives.join(',')}`],
    }));
  const labels = { ...labelsOf(job), [ROLE_LABEL]: REMOVAL_ROLE };
  const { namespace = '' } = job.metadata;
  return {
    ...{ apiVersion: 'v1', kind: 'Pod' },
    metadata: podMeta(job, 'scheduler', { name: removalName(job), namespace, labels }),
    spec: { ...spec, containers, restartPolicy: 'OnFailure' },
  };
}

/** Why the keys are not going to be removed; undefined: they still may be. */
function problemOf(pod: Pod | undefined, late: boolean): string | undefined {
  const exit = lastExit(pod && containerIn(pod));
  const problem = permanentProblem(exit);
  if (problem !== undefined) return problem;
  if (!late) return undefined;
  return exit?.message?.trim().split('\n').at(-1) || `nothing has removed them in ${LIMIT_MS / 1000} s`;
}

/** Whether the Pod has removed the keys. A container beside it, which somebody added, may run for ever. */
const hasRemoved = (pod: Pod): boolean =>
  pod.status?.phase === 'Succeeded' || containerIn(pod)?.state?.terminated?.exitCode === 0;

const plainUrl = (url: string | undefined): string | undefined => url?.replace(/\/+$/, '');

/** Whether the Pod removes keys at the place where the job keeps its own. */
function isAtPlaceOf({ spec }: TrainingJob, pod: Pod): boolean {
  const container = pod.spec.containers?.find(({ name }) => name === CONTAINER);
  const { args = [] } = container ?? {};
  const at = args.indexOf('--store');
  return at >= 0 && plainUrl(args[at + 1]) === plainUrl(spec.scheduler.store.etcd?.url);
}

/**
 * Deletes Pods that remove keys for an earlier job of this name, which was let go without them. One that
 * works at another place disturbs nobody: it goes when it has removed them.
 */
export const strayRemovals = ({ job, pods }: ObservedJob): Action[] =>
  pods
    .filter(({ metadata }) => metadata.labels?.[ROLE_LABEL] === REMOVAL_ROLE)
    .filter((pod) => pod.metadata.name !== removalName(job) && isStill(pod))
    .filter((pod) => isAtPlaceOf(job, pod) || hasRemoved(pod))
    .map((pod) => deletion({ pod }, ENDED_GRACE_SECONDS));

/** An event about keys that stay. */
function kept({ spec }: TrainingJob, why: string): Action {
  const place = withoutPassword(spec.scheduler.store.etcd?.url ?? 'etcd');
  const message = `keys of the job stay in ${place}: ${why}`;
  return { kind: 'event', type: 'Warning', reason: 'StateKept', message };
}

/** Lets go of a deleted job that somebody else manages, and that was the operator's before. */
export function disowned(job: TrainingJob, managedBy: string): Action[] {
  if (job.metadata.deletionTimestamp === undefined || !isHeld(job)) return [];
  return [kept(job, `${managedBy} manages it`), { kind: 'hold', held: false }];
}

/** Takes a deleted job apart, and lets it go when its keys are removed. */
export function removing(observed: ObservedJob, census: Census): Action[] {
  const { job, now, pods, owned, extras = new Set() } = observed;
  const free: Action = { kind: 'hold', held: false };
  // A job that never began has no keys.
  if (job.status?.startPs === undefined) return [free];
  const pod = pods.find(({ metadata }) => metadata.name === removalName(job));
  // The Pod goes when the job has gone, as others do. Before that a pass would make it again.
  if (pod && hasRemoved(pod)) return [free];
  const limit = Date.parse(job.metadata.deletionTimestamp ?? '') + LIMIT_MS;
  const problem = problemOf(pod, now >= limit);
  if (problem !== undefined) {
    return [kept(job, problem), free];
  }
  const start = beginningOf(begun(observed, census, 'none'));
  const set = fixturesOf(job, 0, start, 0, extras).filter(
    ({ kind, metadata }) => kind === 'StatefulSet' && metadata.name === schedulerName(job),
  );
  const still = [...census.scheduler, ...census.ps, ...census.worker].filter(({ pod }) => isStill(pod));
  // The keys are a scheduler's while it may run. One on a machine that does not answer is not waited for: the
  // removal waits until nobody leads.
  const ready = pod === undefined && here(census.scheduler).length === 0;
  return [
    ...set.filter((object) => !sameAs(object, owned)).map((object): Action => ({ kind: 'apply', object })),
    ...still.map((one) => deletion(one, ENDED_GRACE_SECONDS)),
    ...stranded(observed, census),
    ...strayRemovals(observed),
    ...(ready ? [{ kind: 'create' as const, object: removalOf(job) }] : []),
    { kind: 'wake', at: limit },
  ];
}

const withoutPassword = (url: string): string => url.replace(/\/\/[^/]*@/, '//');
