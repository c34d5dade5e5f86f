/** Whether a job has ended, and how. */
import type { Pod } from '../objects.js';
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import { type Census, inState, lastExit, type Member, permanentProblem } from './census.js';
import { countedRestarts } from './excused.js';
import { memoryOf } from './memory.js';
import type { ObservedJob } from './observed.js';
import { quantityOf } from './quantity.js';
import { refusedMembers } from './tokens.js';

/** Why a job has failed. */
export type FailureReason = 'BadInput' | 'BackoffLimitExceeded' | 'DeadlineExceeded' | 'Unrecoverable';

export type ReconcileVerdict =
  | { ended: false }
  | { ended: true; phase: 'Succeeded'; message: string }
  | { ended: true; phase: 'Failed'; reason: FailureReason; message: string };

/**
 * Pods that have failed by themselves, and not to make room for something else. A Pod that was killed for
 * want of memory has failed when there is no more for it.
 */
export function ownFailures(members: readonly Member[]): Member[] {
  return members.filter(({ state, disrupted, starved }) =>
    state === 'failed' ? !disrupted && starved !== 'grows' : state === 'active' && starved === 'spent',
  );
}

/** A worker exits with 0 when every sample is trained. A program that is ended to make room may, too. */
export function finishedWorkers(census: Census): Member[] {
  return inState(census.worker, 'succeeded').filter((one) => !one.disrupted);
}

/**
 * A problem that no other attempt would mend. The newest end of a process that is started again in its Pod
 * counts until it is ready.
 */
function problemOf(
  census: Census,
  waits: readonly Member[],
): { member: Member; problem: string } | undefined {
  const candidates = [
    ...[...census.scheduler, ...census.ps].filter((one) => one.state !== 'ending' && !one.ready),
    ...inState(census.worker, 'active').filter((one) => !one.ready),
    ...ownFailures(census.worker),
  ];
  for (const member of candidates.filter((one) => !waits.includes(one))) {
    const problem = permanentProblem(member.exit);
    if (problem !== undefined) return { member, problem };
  }
  return undefined;
}

/** Why a Pod has failed whose own container did not end badly. */
function describeFailure(name: string, { status }: Pod): string {
  if (status?.reason) return `${name}: ${status.reason}${status.message ? `: ${status.message}` : ''}`;
  for (const one of [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])]) {
    const exit = lastExit(one);
    if (exit && exit.exitCode !== 0) return describeEnd({ name: `${name}: container ${one.name}`, exit });
  }
  return `${name} failed`;
}

/** The end of a process in one line, with its last words. */
export function describeEnd({
  name,
  exit,
  starved,
  pod,
}: Pick<Member, 'name' | 'exit' | 'starved'> & Partial<Pick<Member, 'pod'>>): string {
  if (pod && (exit?.exitCode ?? 0) === 0) return describeFailure(name, pod);
  if (!exit) return `${name} failed`;
  const how = exit.signal ? `signal ${exit.signal}` : (exit.reason ?? 'Error');
  const words = exit.message?.trim().split('\n').at(-1);
  // A worker that a signal has ended leaves its results.
  const last = words?.startsWith('{') ? undefined : words;
  const had = quantityOf((pod && memoryOf(pod)) ?? 0);
  const spent = starved === 'spent' ? `, with ${had} of memory, and resourceLimits allows no more` : '';
  return `${name}: exit code ${exit.exitCode} (${how})${last ? `: ${last}` : ''}${spent}`;
}

/** Time by which a job has to have ended. A pause does not count. Milliseconds since 1970. */
export function deadlineOf({ spec }: TrainingJob, startTime: string): number | undefined {
  const { activeDeadlineSeconds: seconds, suspend } = spec.runPolicy;
  return seconds === undefined || suspend ? undefined : Date.parse(startTime) + seconds * 1000;
}

/** The failures beyond those that there may be, in a sentence. */
function excessOf(
  { spec }: TrainingJob,
  census: Census,
  status: Pick<TrainingJobStatus, 'restartCount' | 'restarts' | 'excusedPods' | 'workerEnds'>,
): string | undefined {
  // A worker that begins again in its Pod has failed before. A PS comes back empty, which parity makes good.
  const again = countedRestarts(census, status);
  const { restartCount = 0, restarts, excusedPods = [] } = status;
  const { ps, worker } = spec.replicaSpecs;
  const limits: [what: string, count: number, limit: number | undefined, members: Member[]][] = [
    ['Pods', restartCount + again, spec.runPolicy.backoffLimit, [...census.ps, ...census.worker]],
    ['PS', restarts?.ps ?? 0, ps.restartCount, census.ps],
    ['workers', (restarts?.worker ?? 0) + again, worker.restartCount, census.worker],
  ];
  for (const [what, count, limit, members] of limits) {
    if (limit === undefined || count <= limit) continue;
    const counted = ownFailures(members).filter(({ name }) => !excusedPods.includes(name));
    const last = counted.at(-1) ?? members.findLast((one) => one.exit !== undefined);
    return `${count} ${what} failed, and ${limit} may${last ? `; ${describeEnd(last)}` : ''}`;
  }
  return undefined;
}

export function verdictOf(
  { job, now }: Pick<ObservedJob, 'job' | 'now'>,
  census: Census,
  status: Parameters<typeof excessOf>[2] & Pick<TrainingJobStatus, 'formed'> & { startTime: string },
): ReconcileVerdict {
  const failed = (reason: FailureReason, message: string): ReconcileVerdict => ({
    ...{ ended: true, phase: 'Failed', reason, message },
  });
  const done = finishedWorkers(census);
  if (done.length > 0 && inState(census.worker, 'active').length === 0)
    return { ended: true, phase: 'Succeeded', message: `${done[0]!.name} found all samples trained` };
  const found = problemOf(census, refusedMembers(status, census, now));
  if (found) {
    const reason = found.problem.startsWith('UNRECOVERABLE') ? 'Unrecoverable' : 'BadInput';
    return failed(reason, `${found.member.name}: ${found.problem}`);
  }
  const excess = excessOf(job, census, status);
  if (excess !== undefined) return failed('BackoffLimitExceeded', excess);
  const deadline = deadlineOf(job, status.startTime);
  if (deadline !== undefined && now >= deadline)
    return failed(
      'DeadlineExceeded',
      `it has not ended in ${job.spec.runPolicy.activeDeadlineSeconds} s since its start`,
    );
  return { ended: false };
}
