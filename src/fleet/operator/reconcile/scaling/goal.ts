/**
 * Numbers of PS and workers that a job is to have now, and its Pods that are to go: by its own counts, or by
 * the ScaleOut or ScaleIn that has begun.
 */
import type { ScalerObject, TrainingJob } from '../../types.js';
import { wantedPs } from '../names.js';

/** A ScaleOut or ScaleIn that has begun and not ended. */
export interface Current {
  scaler: ScalerObject;
  from: number;
  to: number;
  /** True: it is taken back, or deleted, so the counts from before are the goal again. */
  back: boolean;
  /** Pods of a ScaleIn by names; else none. */
  podNames: readonly string[];
}

export interface ScalingGoal {
  ps: number;
  workers: number;
  /** Names of Pods that are to go; `ps` and `workers` count only others. */
  leaving: ReadonlySet<string>;
  current?: Current;
  /** The smaller one of `ps` and the job's own count: PS that a disruption budget may count on. */
  leastPs: number;
}

/** PS or workers by the job's own spec. */
export const ownCount = (job: TrainingJob, role: 'ps' | 'worker'): number =>
  role === 'ps' ? wantedPs(job) : job.spec.replicaSpecs.worker.replicas;

export function hasBegun({ status }: ScalerObject): boolean {
  return status?.from !== undefined && status.to !== undefined;
}

export const isOver = ({ status }: ScalerObject): boolean =>
  status?.phase === 'ScaleSucceeded' || status?.phase === 'ScaleFailed';

/** A ScaleOut is taken back by draining, a ScaleIn by making Pods again. */
export const isBack = ({ kind, status }: ScalerObject): boolean =>
  status?.phase === (kind === 'ScaleOut' ? 'Draining' : 'Scaling');

export const podNamesOf = (scaler: ScalerObject): readonly string[] =>
  scaler.kind === 'ScaleIn' ? (scaler.spec.toDelete.podNames ?? []) : [];

/** Pods that are added; negative: removed. */
export function stepOf(scaler: ScalerObject): number {
  if (scaler.kind === 'ScaleOut') return scaler.spec.toAdd.count;
  return -(scaler.spec.toDelete.count ?? podNamesOf(scaler).length);
}

/**
 * Whether the count that the scaler goes for is that of the job already. The operator applies it when all is
 * done, so that there is nothing to take back: only the status is to say so.
 */
const isApplied = (job: TrainingJob, { status, spec }: ScalerObject): boolean =>
  status?.from !== status?.to && ownCount(job, spec.role) === status?.to;

/** The scaler that has begun and is not over, if there is one. */
function currentOf(job: TrainingJob, scalers: readonly ScalerObject[]): Current | undefined {
  const scaler = scalers.find((one) => hasBegun(one) && !isOver(one));
  if (!scaler) return undefined;
  const { from = 0, to = 0 } = scaler.status ?? {};
  const isDeleted = scaler.metadata.deletionTimestamp !== undefined;
  const back = isBack(scaler) || (isDeleted && !isApplied(job, scaler));
  return { scaler, from, to, back, podNames: podNamesOf(scaler) };
}

/** `leaving`: Pods that are to go whatever the counts are. */
export function goalOf(
  job: TrainingJob,
  scalers: readonly ScalerObject[],
  leaving: ReadonlySet<string> = new Set(),
): ScalingGoal {
  const current = currentOf(job, scalers);
  const count = (role: 'ps' | 'worker'): number => {
    if (current?.scaler.spec.role !== role) return ownCount(job, role);
    return current.back ? current.from : current.to;
  };
  const named = current && !current.back ? current.podNames : [];
  const ps = count('ps');
  return {
    ...{ ps, workers: count('worker'), leaving: new Set([...leaving, ...named]) },
    ...(current ? { current } : {}),
    leastPs: Math.min(ps, wantedPs(job)),
  };
}

/** Scalers, the oldest first. Kind and name decide between those of the same second. */
export function inOrder(scalers: readonly ScalerObject[]): ScalerObject[] {
  const key = ({ kind, metadata }: ScalerObject): string =>
    `${metadata.creationTimestamp ?? ''} ${kind} ${metadata.name}`;
  return [...scalers].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}
