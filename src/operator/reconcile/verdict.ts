/** Whether a job has ended, and how. */
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import { type Census, inState, type Member, permanentProblem } from './census.js';
import type { Observed } from './observed.js';

/** Why a job has failed. */
export type FailureReason = 'BadInput' | 'BackoffLimitExceeded' | 'DeadlineExceeded' | 'Unrecoverable';

export type Verdict =
  | { ended: false }
  | { ended: true; phase: 'Succeeded'; message: string }
  | { ended: true; phase: 'Failed'; reason: FailureReason; message: string };

/** They have ended by themselves, and not because somebody made room for something else. */
export function ownFailures(members: readonly Member[]): Member[] {
  return inState(members, 'failed').filter((one) => !one.disrupted);
}

/** A worker exits with 0 when every sample is trained. One that is deleted does, too. */
export function finishedWorkers(census: Census): Member[] {
  return inState(census.worker, 'succeeded').filter((one) => !one.disrupted);
}

/** Of a PS or scheduler that is started again in its Pod, the newest end counts until it is ready. */
function problemOf(census: Census): { member: Member; problem: string } | undefined {
  const candidates = [
    ...[...census.scheduler, ...census.ps].filter((one) => one.state !== 'ending' && !one.ready),
    ...ownFailures(census.worker),
  ];
  for (const member of candidates) {
    const problem = permanentProblem(member.exit);
    if (problem !== undefined) return { member, problem };
  }
  return undefined;
}

function describeEnd({ name, exit }: Member): string {
  if (!exit) return `${name} failed`;
  const how = exit.signal ? `signal ${exit.signal}` : (exit.reason ?? 'Error');
  const last = exit.message?.trim().split('\n').at(-1);
  return `${name}: exit code ${exit.exitCode} (${how})${last ? `: ${last}` : ''}`;
}

/** When a job that goes on has to have ended. Milliseconds since 1970. */
export function deadlineOf(job: TrainingJob, startTime: string): number | undefined {
  const seconds = job.spec.runPolicy.activeDeadlineSeconds;
  return seconds === undefined ? undefined : Date.parse(startTime) + seconds * 1000;
}

export function verdictOf(
  { job, now }: Pick<Observed, 'job' | 'now'>,
  census: Census,
  status: Pick<TrainingJobStatus, 'restartCount'> & { startTime: string },
): Verdict {
  const failed = (reason: FailureReason, message: string): Verdict => ({
    ...{ ended: true, phase: 'Failed', reason, message },
  });
  const done = finishedWorkers(census);
  if (done.length > 0 && inState(census.worker, 'active').length === 0)
    return { ended: true, phase: 'Succeeded', message: `${done[0]!.name} found all samples trained` };
  const found = problemOf(census);
  if (found) {
    const reason = found.problem.startsWith('UNRECOVERABLE') ? 'Unrecoverable' : 'BadInput';
    return failed(reason, `${found.member.name}: ${found.problem}`);
  }
  const limit = job.spec.runPolicy.backoffLimit;
  if ((status.restartCount ?? 0) > limit) {
    const last = ownFailures([...census.ps, ...census.worker]).at(-1);
    const more = last ? `; ${describeEnd(last)}` : '';
    return failed('BackoffLimitExceeded', `${status.restartCount} Pods failed, and ${limit} may${more}`);
  }
  const deadline = deadlineOf(job, status.startTime);
  if (deadline !== undefined && now >= deadline)
    return failed(
      'DeadlineExceeded',
      `it has not ended in ${job.spec.runPolicy.activeDeadlineSeconds} s since its start`,
    );
  return { ended: false };
}
