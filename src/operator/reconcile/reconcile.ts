/**
 * One pass over a job: from what was observed to what is to be done. It is pure and level-triggered: it knows
 * nothing of the pass before, and asks for nothing that is already so. What was observed may be out of date,
 * so each action is one that does no harm when it is late:
 *
 * - The status is written first, on the version that was observed. Where that is out of date nothing else
 *   happens. So an index is noted before there is a Pod that has it.
 * - Names derive from indices: a Pod that was made already is not made again.
 * - A PS of a job that goes on is deleted only when its process has ended, or when its machine is gone and
 *   the job has given it up. Where there are too many, the job is asked to empty some, and they end by
 *   themselves.
 */
import type { Pod } from '../objects.js';
import { TRAINING_JOB, type TrainingJob, type TrainingJobStatus } from '../types.js';
import { type Census, censusOf, inState, type Member } from './census.js';
import { fixturesOf, sameAs, secretOf } from './fixtures.js';
import { selectorOf, TOKEN_KEYS, wantedPs } from './names.js';
import type { Action, Observed } from './observed.js';
import { podOf } from './pods.js';
import { begun, hasEnded, outcomeOf, sameValue, statusOf } from './status.js';
import { deadlineOf, finishedWorkers, ownFailures, type Verdict, verdictOf } from './verdict.js';

/** A worker that failed is replaced after it, and after twice as long with each further failure. */
const FIRST_BACKOFF_MS = 1000;
const MAX_BACKOFF_MS = 60_000;
/** A change that the job took back is asked for again after it. */
const ASK_AGAIN_MS = 30_000;
/** A process of a job that has ended has nothing to hand over. */
const ENDED_GRACE_SECONDS = 1;

type Index = { ps: number; worker: number };

function deletion({ pod }: Member, graceSeconds?: number): Action {
  const { apiVersion = 'v1', kind = 'Pod', metadata } = pod as Pod;
  return {
    kind: 'delete',
    object: { apiVersion, kind, metadata },
    ...(graceSeconds ? { graceSeconds } : {}),
  };
}

const nextAfter = (members: readonly Member[], noted: number): number =>
  Math.max(noted, ...members.map(({ index }) => index + 1), 0);

/** When the next worker may replace one that failed. The first one is replaced at once. */
function replacedAt(census: Census, restartCount: number): number {
  if (restartCount < 2) return 0;
  const ends = ownFailures(census.worker).map(({ exit }) => Date.parse(exit?.finishedAt ?? '') || 0);
  return Math.max(0, ...ends) + Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (restartCount - 2));
}

/** Pods that are missing. */
function creations(
  observed: Observed,
  census: Census,
  restartCount: number,
): { actions: Action[]; next: Index } {
  const { job, now } = observed;
  const noted = job.status?.nextIndex;
  const next = {
    ps: nextAfter(census.ps, noted?.ps ?? 0),
    worker: nextAfter(census.worker, noted?.worker ?? 0),
  };
  const actions: Action[] = [];
  const make = (role: 'ps' | 'worker', count: number): void => {
    for (let made = 0; made < count; made++)
      actions.push({ kind: 'create', object: podOf(job, role, next[role]++, selectorOf(job, role)) });
  };
  make('ps', wantedPs(job) - inState(census.ps, 'active').length);
  // When a worker has found that all samples are trained, another one would find the same.
  const missing = job.spec.replicaSpecs.worker.replicas - inState(census.worker, 'active').length;
  if (missing > 0 && finishedWorkers(census).length === 0) {
    const at = replacedAt(census, restartCount);
    if (now >= at) make('worker', missing);
    else actions.push({ kind: 'wake', at });
  }
  return { actions, next };
}

/** Pods of a job that goes on and that nobody needs any more. */
function removals({ job }: Observed, census: Census): Action[] {
  const counted = new Set(job.status?.failedPods);
  const surplus = inState(census.worker, 'active').length - job.spec.replicaSpecs.worker.replicas;
  return [
    ...inState(census.ps, 'succeeded', 'lost'),
    // One that failed is counted before it goes.
    ...inState(census.ps, 'failed').filter((one) => one.disrupted || counted.has(one.name)),
    ...inState(census.worker, 'lost'),
    ...inState(census.worker, 'succeeded', 'failed').filter((one) => one.disrupted),
    // A worker that is deleted hands its samples back. Those that failed stay for their logs.
    ...(surplus > 0 ? inState(census.worker, 'active').slice(-surplus) : []),
  ].map((one) => deletion(one));
}

/** Too many PS: the job empties some. */
function shrinking({ job, report, asked, now }: Observed, census: Census): Action[] {
  const wanted = wantedPs(job);
  const active = new Set(inState(census.ps, 'active').map(({ name }) => name));
  if (active.size <= wanted || !report || report.changing || asked?.underWay) return [];
  const serving = report.nodes.filter(({ name, alive }) => alive && active.has(name)).length;
  if (serving <= wanted) return [];
  if (asked?.problem && asked.ps === wanted && now < asked.at + ASK_AGAIN_MS)
    return [{ kind: 'wake', at: asked.at + ASK_AGAIN_MS }];
  return [{ kind: 'scale', ps: wanted, timeoutMs: job.spec.drainTimeoutSeconds * 1000 }];
}

/** A job that has ended: first the scheduler, which saves what there is, then the PS. */
function cleaning({ job }: Observed, census: Census): Action[] {
  const policy = job.spec.runPolicy.cleanPodPolicy;
  if (policy === 'None' || keptForRescue(job.status)) return [];
  const running = inState(census.worker, 'active', 'lost');
  const gone = policy === 'All' ? inState(census.worker, 'succeeded', 'failed') : [];
  const saved = inState(census.scheduler, 'active', 'ending').length === 0;
  return [...running, ...gone, ...(saved ? census.ps.filter(({ state }) => state !== 'ending') : [])].map(
    (one) => deletion(one, ENDED_GRACE_SECONDS),
  );
}

/** More was lost than the code restores: what is left can still be saved, or restored from a checkpoint. */
function keptForRescue(status: TrainingJobStatus | undefined): boolean {
  const failed = status?.conditions?.find(({ type }) => type === 'Failed');
  return failed?.reason === 'Unrecoverable';
}

function ageing({ job, now }: Observed): Action[] {
  const { completionTime } = job.status ?? {};
  const seconds = job.spec.runPolicy.ttlSecondsAfterFinished;
  if (seconds === undefined || completionTime === undefined) return [];
  const at = Date.parse(completionTime) + seconds * 1000;
  if (now < at) return [{ kind: 'wake', at }];
  const { apiVersion, metadata } = job;
  return [{ kind: 'delete', object: { apiVersion, kind: TRAINING_JOB.kind, metadata } }];
}

function told(job: TrainingJob, status: TrainingJobStatus): Action[] {
  if (status.phase === undefined || status.phase === job.status?.phase) return [];
  const message = hasEnded(status) ? outcomeOf(job, status) : `phase ${status.phase}`;
  return [
    { kind: 'event', type: status.phase === 'Failed' ? 'Warning' : 'Normal', reason: status.phase, message },
  ];
}

/** What there always is: address, scheduler, disruption budget, tokens. */
function fixtures(observed: Observed, ended: boolean, startPs: number): Action[] {
  const { job, owned, secret } = observed;
  const stop = ended && job.spec.runPolicy.cleanPodPolicy !== 'None' && !keptForRescue(job.status);
  const actions: Action[] = fixturesOf(job, stop ? 0 : 1, startPs)
    .filter((object) => !sameAs(object, owned))
    .map((object) => ({ kind: 'apply', object }));
  if (secret || job.spec.auth || ended) return actions;
  return [{ kind: 'secret', object: secretOf(job), keys: TOKEN_KEYS }, ...actions];
}

export function reconcile(observed: Observed): Action[] {
  const { job } = observed;
  if (job.metadata.deletionTimestamp !== undefined) return [];
  const census = censusOf(observed);
  const start = begun(observed, census);
  const over = hasEnded(job.status);
  const verdict: Verdict = over ? { ended: false } : verdictOf(observed, census, start);
  const goesOn = !over && !verdict.ended;
  const { actions: made, next } = goesOn
    ? creations(observed, census, start.restartCount ?? 0)
    : { actions: [], next: job.status?.nextIndex ?? { ps: 0, worker: 0 } };
  const status = statusOf(observed, census, start, verdict, next);
  const deadline = goesOn ? deadlineOf(job, start.startTime) : undefined;
  return [
    ...(sameValue(status, job.status) ? [] : [{ kind: 'status' as const, status }]),
    ...told(job, status),
    ...fixtures(observed, over, start.startPs),
    ...made,
    ...(goesOn ? [...removals(observed, census), ...shrinking(observed, census)] : []),
    ...(over ? [...cleaning(observed, census), ...ageing(observed)] : []),
    ...(deadline === undefined ? [] : [{ kind: 'wake' as const, at: deadline }]),
  ];
}
