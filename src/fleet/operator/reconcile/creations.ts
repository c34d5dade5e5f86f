/** Creates Pods that are missing. */
import type { TrainingJobStatus } from '../types.js';
import { type Census, endedAt, type Member } from './census.js';
import { excusedInRow } from './excused.js';
import { withMemory } from './memory.js';
import { INDEX_LABEL, podName, type Replicated, ROLE_LABEL } from './names.js';
import type { Action, ObservedJob, RefusedObject } from './observed.js';
import { podOf } from './pods.js';
import { staying } from './scaling/asks.js';
import type { ScalingGoal } from './scaling/goal.js';
import { wasRefused } from './stuck.js';
import { finishedWorkers, ownFailures } from './verdict.js';

/** Pause between the end of a failed worker and its replacement; it doubles with each further failure. */
const FIRST_BACKOFF_MS = 1000;
const MAX_BACKOFF_MS = 60_000;

type Index = { ps: number; worker: number };
type NotedIndices = { ps: number[]; worker: number[] };

const nextAfter = (members: readonly Member[], noted: number): number =>
  Math.max(noted, ...members.map(({ index }) => index + 1), 0);

/** When the next worker may replace one that failed. The first one is replaced at once. */
function replacedAt(census: Census, count: number): number {
  if (count < 2) return 0;
  const ends = ownFailures(census.worker).map(endedAt);
  return Math.max(0, ...ends) + Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (count - 2));
}

const refusedOf = ({ refusals = [] }: ObservedJob, role: Replicated): RefusedObject[] =>
  refusals.filter(
    ({ object: { kind, metadata } }) => kind === 'Pod' && metadata.labels?.[ROLE_LABEL] === role,
  );

/**
 * Whether the API server is only asked about the next Pod. An operator that begins does not know which
 * indices were refused, and would note others. So where the job was refused something it makes none before
 * one would be taken.
 */
function asksFirst(observed: ObservedJob, role: Replicated): boolean {
  const refused = refusedOf(observed, role);
  if (refused.length > 0) return refused.every(({ tried }) => tried);
  return wasRefused(observed.job) && observed.attempted?.has(role) === false;
}

/**
 * Indices of Pods that the API server has refused, ascending. No Pod has had them, so they are not used twice
 * when the same Pods are tried again.
 */
function unmade(observed: ObservedJob, role: Replicated, members: readonly Member[]): number[] {
  const had = new Set(members.map(({ index }) => index));
  return refusedOf(observed, role)
    .filter((one) => one.unmade && !one.tried)
    .map(({ object }) => Number(object.metadata.labels?.[INDEX_LABEL]))
    .filter((index) => !had.has(index))
    .sort((a, b) => a - b);
}

/**
 * Indices that an operator before this one has noted, and of which no Pod is there: it ended in between. A
 * Pod that it still made has its name, and is taken for the one that is asked for.
 */
function inherited(observed: ObservedJob, role: Replicated, members: readonly Member[]): number[] {
  const { job, askedFor } = observed;
  if (!askedFor) return [];
  const had = new Set(members.map(({ index }) => index));
  const noted = job.status?.making?.[role] ?? [];
  return noted.filter((index) => !had.has(index) && !askedFor.has(podName(job, role, index)));
}

const isNone = ({ ps, worker }: NotedIndices): boolean => ps.length + worker.length === 0;

/**
 * Actions that make missing Pods. `next`: lowest indices that no Pod has had. `making`: indices that are
 * noted before their Pods are made. `withheld`: roles of which none is made now.
 */
export function creations(
  observed: ObservedJob,
  census: Census,
  {
    restartCount = 0,
    excusedPods,
    memory,
  }: Pick<TrainingJobStatus, 'restartCount' | 'excusedPods' | 'memory'>,
  goal: ScalingGoal,
  withheld: { has(role: Replicated): boolean } = new Set(),
): { actions: Action[]; next: Index; making: NotedIndices | undefined } {
  const { now } = observed;
  const job = withMemory(observed.job, memory);
  const noted = job.status?.nextIndex;
  const next = {
    ps: nextAfter(census.ps, noted?.ps ?? 0),
    worker: nextAfter(census.worker, noted?.worker ?? 0),
  };
  const actions: Action[] = [];
  const making: NotedIndices = { ps: [], worker: [] };
  const make = (role: Replicated, count: number): void => {
    const free = new Set([
      ...unmade(observed, role, census[role]),
      ...inherited(observed, role, census[role]),
    ]);
    making[role] = [...free];
    if (withheld.has(role)) return;
    if (count > 0 && asksFirst(observed, role)) {
      actions.push({ kind: 'try', object: podOf(job, role, next[role]) });
      return;
    }
    const again = [...free].sort((a, b) => a - b);
    for (let made = 0; made < count; made++) {
      const index = again.shift() ?? next[role]++;
      if (!free.has(index)) making[role].push(index);
      actions.push({ kind: 'create', object: podOf(job, role, index) });
    }
  };
  make('ps', goal.ps - staying(census.ps, goal).length);
  // When a worker has found that all samples are trained, another one would find the same.
  const missing = goal.workers - staying(census.worker, goal).length;
  if (missing > 0 && finishedWorkers(census).length === 0) {
    const at = replacedAt(census, restartCount + excusedInRow(census, excusedPods, now));
    if (now >= at) make('worker', missing);
    else actions.push({ kind: 'wake', at });
  }
  return { actions, next, making: isNone(making) ? undefined : making };
}
