/**
 * ScaleOut and ScaleIn: one at a time, the oldest first. Their effect on a job is its goal (goal.ts). Here
 * they begin, are tried again, are taken back and end. An object begins with its status: what follows from
 * that comes a pass later, when it is written. Its finalizer holds it until a change that was begun is over.
 */
import { GROUP, type ScalerObject, type ScalerStatus } from '../../types.js';
import { type Census, inState } from '../census.js';
import type { Action, ObservedJob } from '../observed.js';
import { sameValue } from '../same.js';
import { timeOf } from '../time.js';
import { attemptKey, changesOf, joined, runningScale, staying } from './asks.js';
import { applierOf, isHeldByOperator } from './declared.js';
import {
  type Current,
  hasBegun,
  inOrder,
  isBack,
  isOver,
  ownCount,
  podNamesOf,
  type ScalingGoal,
  stepOf,
} from './goal.js';

export const FINALIZER = `${GROUP}/scaling`;

type Pass = ObservedJob & { census: Census; goal: ScalingGoal };
type Why = { reason: string; message: string };

const titleOf = ({ kind, metadata }: ScalerObject): string => `${kind} ${metadata.name}`;
const isHeld = ({ metadata }: ScalerObject): boolean => metadata.finalizers?.includes(FINALIZER) ?? false;
const isDeleted = ({ metadata }: ScalerObject): boolean => metadata.deletionTimestamp !== undefined;

function written(scaler: ScalerObject, status: ScalerStatus): Action[] {
  return sameValue(scaler.status, status) ? [] : [{ kind: 'scalerStatus', scaler, status }];
}

function event(scaler: ScalerObject, reason: string, message: string, bad = false): Action {
  const type = bad ? 'Warning' : 'Normal';
  return { kind: 'event', type, reason, message: `${titleOf(scaler)}: ${message}` };
}

function over(
  pass: Pass,
  scaler: ScalerObject,
  phase: 'ScaleSucceeded' | 'ScaleFailed',
  why?: Why,
): Action[] {
  const { reason: _, message: __, ...before } = scaler.status ?? {};
  const status = { ...before, phase, ...why, completionTime: timeOf(pass.now) } as ScalerStatus;
  const { from, to } = before;
  const text = why?.message ?? `${from} to ${to} ${scaler.spec.role}`;
  return [...written(scaler, status), event(scaler, phase, text, phase === 'ScaleFailed')];
}

/** Why the object can never be carried out; undefined: it can. */
function refusal({ job, census }: Pass, scaler: ScalerObject): Why | undefined {
  const { role } = scaler.spec;
  const { minReplicas = 0, maxReplicas = Number.POSITIVE_INFINITY } = job.spec.replicaSpecs[role];
  const from = ownCount(job, role);
  const to = from + stepOf(scaler);
  const { k, r } = job.spec.code;
  const applier = applierOf(job, role);
  if (applier !== undefined) {
    const message =
      `"${applier}" applies replicas of ${role}, and would set them back: change them there, or take them ` +
      `out of what it applies. They stay as they are then: the operator holds the present ${from}, too`;
    return { reason: 'DeclaredElsewhere', message };
  }
  if (to > maxReplicas) {
    const message = `${to} ${role} are more than the ${maxReplicas} of maxReplicas`;
    return { reason: 'AboveMaximum', message };
  }
  if (role === 'ps' && to < k + r) {
    const message = `${to} PS are too few: a group of this job needs ${k}+${r}`;
    return { reason: 'BelowMinimum', message };
  }
  if (to < minReplicas)
    return {
      reason: 'BelowMinimum',
      message: `${to} ${role} are fewer than the ${minReplicas} of minReplicas`,
    };
  const there = new Set(inState(census[role], 'active').map(({ name }) => name));
  const unknown = podNamesOf(scaler).filter((name) => !there.has(name));
  if (unknown.length === 0) return undefined;
  return { reason: 'NoSuchPod', message: `no ${role} of this job is called ${unknown.join(', ')}` };
}

/**
 * Applies the present count beside the tool that applies it. A field whose only owner leaves it out gets its
 * default, which would scale a running job in.
 */
function held({ job }: Pass, { spec: { role } }: ScalerObject, { reason }: Why): Action[] {
  if (reason !== 'DeclaredElsewhere' || isHeldByOperator(job, role)) return [];
  return [{ kind: 'resize', role, replicas: ownCount(job, role) }];
}

function waitsFor(pass: Pass, scaler: ScalerObject): Why | undefined {
  const { goal, job, report } = pass;
  const first =
    goal.current?.scaler ?? inOrder(pass.scalers ?? []).find((one) => !isOver(one) && !isDeleted(one));
  if (first && first.metadata.uid !== scaler.metadata.uid)
    return { reason: 'Queued', message: `waits for ${titleOf(first)}` };
  if (job.status?.phase !== 'Running' && job.status?.phase !== 'Scaling')
    return { reason: 'JobNotRunning', message: `the job is ${job.status?.phase ?? 'Pending'}` };
  if (scaler.spec.role === 'ps' && !report) return { reason: 'NoAnswer', message: 'the job does not answer' };
  if (scaler.spec.role === 'ps' && goal.leaving.size > 0)
    return { reason: 'Reclaiming', message: `the job leaves ${[...goal.leaving].join(', ')}` };
  return undefined;
}

function pending(pass: Pass, scaler: ScalerObject): Action[] {
  const waits = waitsFor(pass, scaler);
  if (waits?.reason === 'Queued') return written(scaler, { phase: 'Pending', ...waits });
  const never = refusal(pass, scaler);
  if (never) return [...held(pass, scaler, never), ...over(pass, scaler, 'ScaleFailed', never)];
  if (waits) return written(scaler, { phase: 'Pending', ...waits });
  const { role } = scaler.spec;
  const from = ownCount(pass.job, role);
  const to = from + stepOf(scaler);
  const now = timeOf(pass.now);
  const status = {
    ...{ phase: scaler.kind === 'ScaleOut' ? 'Scaling' : 'Draining', from, to, attempt: 0 },
    ...{ ready: readyOf(pass, role), startTime: now, progressTime: now },
  } as ScalerStatus;
  return [...written(scaler, status), event(scaler, 'Scaling', `${from} to ${to} ${role}`)];
}

const readyOf = ({ census, goal }: Pass, role: 'ps' | 'worker'): number =>
  staying(census[role], goal).filter((one) => one.ready).length;

/** State of the changes that the job was asked for. */
function attemptOf(pass: Pass, current: Current) {
  const prefix = attemptKey(current);
  const asked = (pass.asked ?? []).filter(({ key, unheard }) => key.startsWith(prefix) && !unheard);
  const noted = changesOf(pass, current).map(({ id }) => id);
  const ids = new Set([...noted, ...asked.flatMap(({ id }) => (id === undefined ? [] : [id]))]);
  const known = (pass.report?.changes ?? []).filter(({ id }) => ids.has(id));
  const refused = asked.find(({ problem }) => problem !== undefined)?.problem;
  return {
    ids: [...ids].sort((a, b) => a - b),
    running: asked.some(({ underWay }) => underWay) || known.some(({ state }) => state === 'running'),
    problem: refused ?? known.find(({ state }) => state === 'cancelled')?.reason,
    done: ids.size > 0 && [...ids].every((id) => known.some((one) => one.id === id && one.state === 'done')),
  };
}

/** Whether the goal is reached. */
function isDone(pass: Pass, current: Current, attempt: ReturnType<typeof attemptOf>): boolean {
  const { census, goal } = pass;
  const { scaler, to, podNames } = current;
  const { role } = scaler.spec;
  if (scaler.kind === 'ScaleOut') return role === 'ps' ? attempt.done : readyOf(pass, 'worker') >= to;
  if (inState(census[role], 'active').some(({ name }) => podNames.includes(name))) return false;
  return staying(census[role], goal).length <= to && !attempt.running;
}

/** Whether Pods are still there that hold nothing any more. */
function leftovers({ census, now }: Pass, { scaler }: Current): boolean {
  if (scaler.spec.role === 'ps') return inState(census.ps, 'succeeded').length > 0;
  return inState(census.worker, 'ending').length > 0 && now < lateAt(scaler);
}

const lateAt = ({ status, spec }: ScalerObject): number =>
  Date.parse(status?.progressTime ?? '') + spec.timeoutSeconds * 1000;

function takenBack(pass: Pass, { scaler }: Current, why: Why): Action[] {
  const phase = scaler.kind === 'ScaleOut' ? 'Draining' : 'Scaling';
  const { changes: _, ...before } = scaler.status ?? {};
  const status = { ...before, phase, ...why, progressTime: timeOf(pass.now) } as ScalerStatus;
  return [...written(scaler, status), event(scaler, 'TakenBack', why.message, true)];
}

/** Why the API server did not take the number when it was applied last. Undefined: it was not refused. */
const refusedNumber = ({ refusals = [], job }: Pass): string | undefined =>
  refusals.find(({ object: { kind } }) => kind === job.kind)?.message;

/** Applies the number that is reached. Where it is refused, it is tried until the timeout has passed. */
function applied(pass: Pass, current: Current): Action[] {
  const { scaler, to } = current;
  const resize: Action = { kind: 'resize', role: scaler.spec.role, replicas: to };
  const message = refusedNumber(pass);
  if (message === undefined) return [resize];
  const before = scaler.status?.reason === 'Refused' ? scaler.status : undefined;
  const why = { reason: 'Refused', message };
  if (before && pass.now >= lateAt(scaler)) return takenBack(pass, current, why);
  const status = before ?? { ...scaler.status, progressTime: timeOf(pass.now) };
  const told = { ...scaler, status: { ...status, ...why } } as ScalerObject;
  return [...written(scaler, told.status!), { kind: 'wake', at: lateAt(told) }, resize];
}

function forward(pass: Pass, current: Current): Action[] {
  const { job, now } = pass;
  const { scaler, from, to } = current;
  const { status = {}, spec } = scaler;
  const { role } = spec;
  const cancelled = { reason: 'Cancelled', message: 'it was deleted while it ran' };
  if (current.back) return takenBack(pass, current, cancelled);
  const attempt = attemptOf(pass, current);
  if (isDone(pass, current, attempt)) {
    // The spec comes first: an operator that goes on after a crash finds it as it is to be. A count that
    // somebody has changed meanwhile stays.
    if (ownCount(job, role) === from && from !== to) return applied(pass, current);
    if (!leftovers(pass, current)) return over(pass, scaler, 'ScaleSucceeded');
    return written(scaler, { ...status, phase: 'Deleting' } as ScalerStatus);
  }
  // The job goes for that number by its own count.
  if (isDeleted(scaler)) return over(pass, scaler, 'ScaleFailed', cancelled);
  const ready = readyOf(pass, role);
  const further = ready > (status.ready ?? 0);
  const late = role === 'worker' && !further && now >= lateAt(scaler);
  const problem = attempt.problem ?? (late ? `no progress in ${spec.timeoutSeconds} s` : undefined);
  if (problem !== undefined && (status.attempt ?? 0) >= spec.backoffLimit)
    return takenBack(pass, current, { reason: 'TakenBack', message: problem });
  if (problem !== undefined) {
    const { changes: _, ...before } = status;
    const again = { attempt: (status.attempt ?? 0) + 1, reason: 'TakenBack', message: problem };
    return written(scaler, { ...before, ...again, progressTime: timeOf(now) } as ScalerStatus);
  }
  return [
    ...written(scaler, {
      ...status,
      ...(further ? { ready, progressTime: timeOf(now) } : {}),
      ...(attempt.ids.length > 0 ? { changes: attempt.ids } : {}),
    } as ScalerStatus),
    ...(role === 'worker' ? [{ kind: 'wake' as const, at: lateAt(scaler) }] : []),
  ];
}

/** Whether the job is again as it was before. */
function isRestored(pass: Pass, { scaler, from, podNames }: Current): boolean {
  const { census, report, goal } = pass;
  const { role } = scaler.spec;
  if (role === 'ps' && !report) return false;
  const scale = role === 'ps' ? runningScale(pass) : undefined;
  if (scale && (scale.to !== from || scaler.kind === 'ScaleOut')) return false;
  if (
    role === 'ps' &&
    joined(pass, census.ps).some(({ name }) => podNames.includes(name) && isLeaving(pass, name))
  )
    return false;
  return scaler.kind === 'ScaleIn' || staying(census[role], goal).length <= from;
}

const isLeaving = ({ report }: Pass, name: string): boolean =>
  report?.changes.some(({ state, leaving }) => state === 'running' && leaving.includes(name)) ?? false;

function back(pass: Pass, current: Current): Action[] {
  const { scaler } = current;
  if (!isRestored(pass, current)) return [];
  const { reason = 'TakenBack', message = '' } = scaler.status ?? {};
  return over(pass, scaler, 'ScaleFailed', { reason, message });
}

/**
 * Actions for all ScaleOut and ScaleIn of a job that pauses: none begins, and those that have begun go on
 * with the job. `gone`: no Pod of it is left, so there is nothing to take back either.
 */
export function pausedSteps({ scalers = [] }: ObservedJob, gone: boolean): Action[] {
  const why = { reason: 'JobSuspended', message: 'the job is suspended' };
  return inOrder(scalers).flatMap((scaler): Action[] => {
    const begun = hasBegun(scaler);
    if (isOver(scaler) || (isDeleted(scaler) && (gone || !begun)))
      return isHeld(scaler) ? [{ kind: 'letGo', scaler }] : [];
    return begun ? [] : written(scaler, { phase: 'Pending', ...why });
  });
}

/** Actions for all ScaleOut and ScaleIn of the job. `ended`: the job has ended. */
export function scalerSteps(
  observed: ObservedJob,
  census: Census,
  goal: ScalingGoal,
  ended: boolean,
): Action[] {
  const pass: Pass = { ...observed, census, goal };
  return inOrder(observed.scalers ?? []).flatMap((scaler): Action[] => {
    if (isOver(scaler) || (isDeleted(scaler) && !hasBegun(scaler)))
      return isHeld(scaler) ? [{ kind: 'letGo', scaler }] : [];
    // An adopted object is deleted with the job, whatever becomes of it.
    if (!isHeld(scaler)) return [{ kind: 'adopt', scaler }];
    if (ended) return over(pass, scaler, 'ScaleFailed', { reason: 'JobEnded', message: 'the job has ended' });
    if (!hasBegun(scaler)) return pending(pass, scaler);
    const { current } = goal;
    if (!current || current.scaler.metadata.uid !== scaler.metadata.uid) return [];
    return isBack(scaler) ? back(pass, current) : forward(pass, current);
  });
}
