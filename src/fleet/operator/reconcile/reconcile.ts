/**
 * One pass over a job: from what was observed to what is to be done. It is pure and level-triggered: it knows
 * nothing of the pass before, and asks for nothing that is already so. What was observed may be out of date,
 * so each action is one that does no harm when it is late:
 *
 * - The status is written first, on the version that was observed. Where that is out of date nothing else
 *   happens. So an index is noted before there is a Pod that has it. Only what the status tells of comes
 *   before it: the report of a job that ends, and the ConfigMap of one that has formed (guard.ts).
 * - Names derive from indices: a Pod that was made already is not made again.
 * - A PS of a job that goes on is deleted only when its process has ended, or when its machine is gone and
 *   the job has given it up, or before it began. Where there are too many, the job is asked to empty some,
 *   and they end by themselves. All go only when the job is suspended and the checkpoint of it is noted
 *   (suspension.ts).
 */
import type { ObjectManifest } from '../objects.js';
import { GROUP, type TrainingJob, type TrainingJobStatus } from '../types.js';
import { stranded } from './apart.js';
import { type Census, censusOf, inState } from './census.js';
import { creations } from './creations.js';
import { ageing, cleaning, isGuarded, keptForRescue } from './ended.js';
import { firstPodOf, fixturesOf, sameAs, sameKind, secretOf, wasEdited } from './fixtures.js';
import { FOREIGN_CONDITION, retold } from './foreign.js';
import { gates } from './gates.js';
import { growthTold, starving } from './growth.js';
import { firstGuard, lateGuard } from './guard.js';
import { type PodRole, ROLES, schedulersOf, TOKEN_KEYS } from './names.js';
import type { Action, ObservedJob } from './observed.js';
import { outdated } from './outdated.js';
import { gangProblem } from './placing.js';
import { planning } from './plan.js';
import { type Beginning, withSoundTemplates } from './pods.js';
import { queueingOf, queueSteps } from './queueing.js';
import { reclaimed } from './reclaim.js';
import { disowned, holding, isHeld, removing, strayRemovals } from './remains.js';
import { removals } from './removals.js';
import { firstReport, gathering, lateReport } from './results.js';
import { sameValue } from './same.js';
import { asks } from './scaling/asks.js';
import { goalOf, type ScalingGoal } from './scaling/goal.js';
import { pausedSteps, scalerSteps } from './scaling/scalers.js';
import { beginningOf, begun, hasEnded, outcomeOf, statusOf } from './status.js';
import { lookAgain, stuckOf, stuckTold } from './stuck.js';
import { isPaused, type Stage, stageOf, suspending } from './suspension.js';
import { isDrawn, lookAgainForTokens, tokenProblem } from './tokens.js';
import { deadlineOf, type ReconcileVerdict, verdictOf } from './verdict.js';

/** Conditions whose every new reason is an event. */
const STORY = new Set(['Suspended', 'Redundant', 'Checkpointing', 'Restarting', FOREIGN_CONDITION]);
/** Reasons of conditions that somebody has to do something about. */
const WARNS: ReadonlySet<string> = new Set(['Degraded', 'Lost', 'NoZones', 'Failing', 'Refused']);

/** Objects that not every job has. */
const BUDGET = 'PodDisruptionBudget';
const OPTIONAL: ReadonlySet<string> = new Set([
  ...['NetworkPolicy', 'PodMonitor', 'PodGroup', 'Workload', BUDGET],
]);
const isSet = ({ kind }: ObjectManifest): boolean => kind === 'StatefulSet';
const NONE: ReadonlySet<string> = new Set();
/** Time until it is looked again whether an earlier job has gone. */
const EARLIER_MS = 1000;
/** Time in which the controller of StatefulSets makes the Pod of a scheduler. */
const CONTROLLER_MS = 5000;

function told(job: TrainingJob, status: TrainingJobStatus): Action[] {
  const event = (reason: string, message: string, warns = false): Action => ({
    ...{ kind: 'event', type: warns ? 'Warning' : 'Normal', reason, message },
  });
  const before = new Map(job.status?.conditions?.map((one) => [one.type, one.reason]));
  const story = (status.conditions ?? [])
    .filter(({ type, reason }) => STORY.has(type) && before.get(type) !== reason)
    .map(({ type, reason = '', message }) =>
      event(`${type}${reason}`, message || `${type}: ${reason}`, WARNS.has(reason)),
    );
  if (status.phase === undefined || status.phase === job.status?.phase) return story;
  const message = hasEnded(status) ? outcomeOf(job, status) : `phase ${status.phase}`;
  return [...story, event(status.phase, message, status.phase === 'Failed')];
}

/** Objects that a job always has: address, scheduler, disruption budget, tokens. */
function fixtures(
  observed: ObservedJob,
  stage: Stage,
  start: Beginning,
  leastPs: number,
  { queued, guarded, formed = false }: { queued: boolean; guarded: boolean; formed?: boolean | undefined },
): Action[] {
  const { job, owned, secret, operatorNamespace } = observed;
  const ended = hasEnded(job.status);
  const cleans = job.spec.runPolicy.cleanPodPolicy !== 'None' && !keptForRescue(job.status);
  const stop = ended ? cleans : isPaused(stage);
  const extras = observed.extras ?? NONE;
  const all = fixturesOf(job, stop ? 0 : schedulersOf(job), start, leastPs, extras, operatorNamespace);
  const wanted = all.filter(({ kind }) => guarded || kind !== BUDGET);
  const actions: Action[] = wanted
    .filter((object) => !sameAs(object, owned) || wasEdited(object, owned))
    .map((object) => ({ kind: 'apply', object }));
  for (const object of owned.filter(({ kind }) => OPTIONAL.has(kind) && !(queued && kind === 'Workload')))
    if (!wanted.some((one) => sameKind(one, object))) actions.push({ kind: 'delete', object });
  if (secret || job.spec.auth || ended || isDrawn(job, secret, formed)) return actions;
  return [{ kind: 'secret', object: secretOf(job), keys: TOKEN_KEYS }, ...actions];
}

/** Whether there are as many of each role as are wanted, and all of them serve. */
function allServe(census: Census, goal: ScalingGoal, schedulers: number): boolean {
  const serving = (role: PodRole): number =>
    inState(census[role], 'active').filter((one) => one.ready).length;
  const workers = serving('worker') + inState(census.worker, 'succeeded').length;
  return serving('scheduler') >= schedulers && serving('ps') >= goal.ps && workers >= goal.workers;
}

/** Outcome of a job that has ended. */
function endOf(job: TrainingJob): { succeeded: boolean; message: string } {
  return { succeeded: job.status?.phase === 'Succeeded', message: outcomeOf(job, job.status ?? {}) };
}

/**
 * Where the Pod of a scheduler does not come, the API server is asked whether it would take one. Again and
 * again, with the pauses of passes that meet a refusal.
 */
function tried({ now, owned }: ObservedJob, census: Census, made: readonly Action[]): Action[] {
  const set = (owned as readonly ObjectManifest[]).find(isSet);
  const { replicas = 0 } = (set?.spec ?? {}) as { replicas?: number };
  const applies = made.some((one) => one.kind === 'apply' && isSet(one.object));
  const since = Date.parse(set?.metadata.creationTimestamp ?? '');
  if (!set || applies || replicas === 0 || census.scheduler.length > 0 || Number.isNaN(since)) return [];
  const at = since + CONTROLLER_MS;
  return [now < at ? { kind: 'wake', at } : { kind: 'try', object: firstPodOf(set) }];
}

/** Whether Pods of the job were made. */
export const hasPods = ({ status }: TrainingJob): boolean => (status?.nextIndex?.ps ?? 0) > 0;

/**
 * Why a job waits of which no Pod was made: an earlier one of its name is still being removed. What has its
 * names would not be its own, and would go.
 */
function earlierProblem({ job, earlier = [] }: ObservedJob): string | undefined {
  if (hasPods(job) || earlier.length === 0) return undefined;
  return `it waits until what an earlier job of this name has left is gone: ${earlier.join(', ')}`;
}

/** The controller that a job may name as its own (spec.managedBy). */
const OURS = `${GROUP}/operator`;

export function reconcile(seen: ObservedJob): Action[] {
  const { managedBy = OURS } = seen.job.spec;
  if (managedBy !== OURS) return disowned(seen.job, managedBy);
  const sound = withSoundTemplates(seen.job);
  const { job, queue } = queueingOf({ ...seen, job: sound.job });
  const gang = gangProblem(job, seen.extras ?? NONE);
  const earlier = earlierProblem(seen);
  // A group that cannot be made holds back all Pods, and so does what an earlier job has left.
  const holds = gang ?? earlier;
  const problems = holds === undefined ? sound.problems : new Map(ROLES.map((role) => [role, holds]));
  const observed = { ...seen, job };
  const census = censusOf(observed);
  if (job.metadata.deletionTimestamp !== undefined) return isHeld(job) ? removing(observed, census) : [];
  const over = hasEnded(job.status);
  const stage: Stage = over ? 'none' : stageOf(observed, census);
  const start = begun(observed, census, stage);
  const paused = isPaused(stage);
  const found: ReconcileVerdict = over || paused ? { ended: false } : verdictOf(observed, census, start);
  const asking = gathering(observed, found, census);
  // A job that is asked what came of it makes and empties nothing any more, and has not ended.
  const verdict: ReconcileVerdict = asking ? { ended: false } : found;
  const ends = over || found.ended;
  const goesOn = !ends && !paused;
  const leaving = new Set([...reclaimed(observed, census), ...starving(census)]);
  const wanted = goalOf(job, observed.scalers ?? [], leaving);
  // A pausing job wants no workers.
  const goal = stage === 'none' ? wanted : { ...wanted, workers: 0 };
  const {
    actions: made,
    next,
    making,
  } = goesOn
    ? creations(observed, census, start, goal, problems)
    : { actions: [], next: job.status?.nextIndex ?? { ps: 0, worker: 0 }, making: undefined };
  // A job that never began has no objects, and a new life begins in the next pass.
  const never = stage === 'suspended' && job.status?.startPs === undefined;
  const fixed =
    never || stage === 'returning' || earlier !== undefined
      ? []
      : [
          ...holding(job),
          ...fixtures(observed, stage, beginningOf(start), goal.leastPs, {
            ...{ queued: queue !== undefined, guarded: !over || isGuarded(job, census) },
            formed: start.formed,
          }),
        ].filter(
          (one) => !(goesOn && problems.has('scheduler') && one.kind === 'apply' && isSet(one.object)),
        );
  const pods = goesOn ? [...made, ...tried(observed, census, fixed)] : made;
  const all = [...fixed, ...pods];
  const begins = census.worker.length > 0 || wanted.workers === 0;
  const ready = queue?.admitted === true && begins && allServe(census, goal, schedulersOf(job));
  // One beside whose process others run on uses what it has.
  const finished = inState(census.worker, 'succeeded').filter(({ lingers }) => !lingers).length;
  const steps = queueSteps(observed, queue, {
    ...{ gone: stage === 'suspended', ready, finished },
    outcome: over ? endOf(job) : undefined,
  });
  const waits = queue !== undefined && stage === 'suspended';
  const kept = {
    template: [...sound.problems.values()][0],
    ...{ gang, earlier, queue: queue?.problem, tokens: tokenProblem(observed, census, start, goal) },
  };
  const stuck = goesOn || waits ? stuckOf(observed, census, [...all, ...steps], kept) : undefined;
  const status = statusOf(observed, {
    census,
    start,
    verdict,
    next,
    making,
    goal: wanted,
    stage,
    stuck,
    queue,
  });
  const deadline = goesOn ? deadlineOf(job, start.startTime) : undefined;
  return [
    ...(verdict.ended ? firstReport(observed, census, status, verdict) : []),
    ...firstGuard(observed, start),
    ...(sameValue(status, job.status) ? [] : [{ kind: 'status' as const, status }]),
    ...told(job, status),
    ...(asking ?? []),
    ...(goesOn ? growthTold(job, census, status.memory) : []),
    ...(goesOn || waits ? stuckTold(observed, stuck) : []),
    ...steps,
    ...fixed,
    ...stranded(observed, census),
    ...strayRemovals(observed),
    ...(goesOn ? retold(observed, census) : []),
    // A job that saves itself needs the scheduler that it has.
    ...(goesOn && (stage === 'none' || stage === 'held') ? outdated(observed, census) : []),
    ...pods,
    ...(goesOn ? removals(observed, census, goal) : []),
    ...(goesOn && stage === 'none' ? asks(observed, census, goal) : []),
    ...(goesOn ? gates(observed, census, goal) : []),
    ...(goesOn && stage === 'none' ? planning(observed) : []),
    ...(ends ? [] : suspending(observed, census, stage)),
    ...(ends || stage === 'none'
      ? scalerSteps(observed, census, goal, ends)
      : pausedSteps(observed, stage === 'suspended')),
    ...(over ? [...cleaning(observed, census), ...ageing(observed)] : []),
    ...(goesOn ? lookAgain(observed, census) : []),
    ...(goesOn && kept.tokens !== undefined ? lookAgainForTokens(census, seen.now) : []),
    // No watch tells that a Secret has gone.
    ...(goesOn && earlier !== undefined ? [{ kind: 'wake' as const, at: seen.now + EARLIER_MS }] : []),
    ...(deadline === undefined ? [] : [{ kind: 'wake' as const, at: deadline }]),
    // Where it is refused again the pass ends.
    ...(over ? lateReport(observed, census, status) : []),
    ...(goesOn ? lateGuard(observed, status) : []),
  ];
}
