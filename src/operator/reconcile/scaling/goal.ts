/**
 * How many PS and workers a job is to have now, and which of its Pods are to go: by its own counts, or by the
 * ScaleOut or ScaleIn that has begun.
 */
import type { Scaler, TrainingJob } from '../../types.js';
import { wantedPs } from '../names.js';

/** What one ScaleOut or ScaleIn makes of a job. It has begun, and not ended. */
export interface Current {
  scaler: Scaler;
  from: number;
  to: number;
  /** It is taken back, or deleted: what was before is to be again. */
  back: boolean;
  /** Of a ScaleIn by names. */
  podNames: readonly string[];
}

export interface Goal {
  ps: number;
  workers: number;
  /** Names of Pods that are to go, and that others take the place of. */
  leaving: ReadonlySet<string>;
  current?: Current;
  /** The least number of PS that the goal, or what it comes from or goes back to, has. */
  leastPs: number;
}

/** PS or workers by the job's own spec. */
export const ownCount = (job: TrainingJob, role: 'ps' | 'worker'): number =>
  role === 'ps' ? wantedPs(job) : job.spec.replicaSpecs.worker.replicas;

export function hasBegun({ status }: Scaler): boolean {
  return status?.from !== undefined && status.to !== undefined;
}

export const isOver = ({ status }: Scaler): boolean =>
  status?.phase === 'ScaleSucceeded' || status?.phase === 'ScaleFailed';

/** A ScaleOut is taken back by draining, a ScaleIn by making Pods again. */
export const isBack = ({ kind, status }: Scaler): boolean =>
  status?.phase === (kind === 'ScaleOut' ? 'Draining' : 'Scaling');

export const podNamesOf = (scaler: Scaler): readonly string[] =>
  scaler.kind === 'ScaleIn' ? (scaler.spec.toDelete.podNames ?? []) : [];

/** By how many. */
export function stepOf(scaler: Scaler): number {
  if (scaler.kind === 'ScaleOut') return scaler.spec.toAdd.count;
  return -(scaler.spec.toDelete.count ?? podNamesOf(scaler).length);
}

/** The one that has begun; else there is none. */
function currentOf(scalers: readonly Scaler[]): Current | undefined {
  const scaler = scalers.find((one) => hasBegun(one) && !isOver(one));
  if (!scaler) return undefined;
  const { from = 0, to = 0 } = scaler.status ?? {};
  const back = isBack(scaler) || scaler.metadata.deletionTimestamp !== undefined;
  return { scaler, from, to, back, podNames: podNamesOf(scaler) };
}

/** `leaving`: Pods that are to go whatever the counts are. */
export function goalOf(
  job: TrainingJob,
  scalers: readonly Scaler[],
  leaving: ReadonlySet<string> = new Set(),
): Goal {
  const current = currentOf(scalers);
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

/** Oldest first. Kind and name decide between those of the same second. */
export function inOrder(scalers: readonly Scaler[]): Scaler[] {
  const key = ({ kind, metadata }: Scaler): string =>
    `${metadata.creationTimestamp ?? ''} ${kind} ${metadata.name}`;
  return [...scalers].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}
