/**
 * Tokens of a job that has formed. Its processes have read them when they began. A Pod that is made after the
 * Secret was changed has others, and the job refuses it. That is no failure of the job, and others drawn at
 * random would not help.
 */
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import {
  type Census,
  endedAt,
  inState,
  lastError,
  type Member,
  serves,
  servesFrom,
  servesSince,
} from './census.js';
import { secretName } from './names.js';
import type { Action, ObservedJob } from './observed.js';
import type { ScalingGoal } from './scaling/goal.js';

/** Members that a job that has formed refuses for their token, or for their certificate. */
export const refusedMembers = (
  { formed = false }: Pick<TrainingJobStatus, 'formed'>,
  census: Census,
  now: number,
): Member[] =>
  inState(formed ? [...census.scheduler, ...census.ps, ...census.worker] : [], 'active', 'failed').filter(
    (one) => !serves(one, now) && lastError(one.exit)?.code === 'UNAUTHORIZED',
  );

/**
 * Whether a Pod that has failed, and stays for its logs, says nothing of the tokens any more: a process of
 * its role that began later serves, or as many serve as are wanted.
 */
function isPast(one: Member, census: Census, goal: ScalingGoal, now: number): boolean {
  const [members, wanted] = census.worker.includes(one)
    ? [census.worker, goal.workers]
    : census.ps.includes(one)
      ? [census.ps, goal.ps]
      : [census.scheduler, 1];
  const serving = inState(members, 'active').filter((other) => serves(other, now)).length;
  return one.state === 'failed' && (serving >= wanted || servesSince(members, now) > endedAt(one));
}

/** Whether the Secret that the operator has drawn is gone, and the processes that know its tokens are not. */
export const isDrawn = (job: TrainingJob, secret: boolean, formed = false): boolean =>
  !secret && !job.spec.auth && formed;

/** Asks for a pass at which a member that is ready now serves: then a problem may be over. */
export function lookAgainForTokens(census: Census, now: number): Action[] {
  const ready = [...census.ps, ...census.worker].filter((one) => one.ready && !serves(one, now));
  return ready.length === 0 ? [] : [{ kind: 'wake', at: Math.min(...ready.map(servesFrom)) }];
}

/** The problem with the tokens, and what to do. Undefined: none is known. */
export function tokenProblem(
  { job, secret, now }: Pick<ObservedJob, 'job' | 'secret' | 'now'>,
  census: Census,
  status: TrainingJobStatus,
  goal: ScalingGoal,
): string | undefined {
  const name = secretName(job);
  const first = refusedMembers(status, census, now).find((one) => !isPast(one, census, goal, now));
  if (first) {
    const { code, message } = lastError(first.exit)!;
    const tls = job.spec.tls ? `, or the certificate of Secret ${job.spec.tls.secretName}` : '';
    return (
      `${first.name}: ${code}: ${message}: the Secret ${name} has changed since the job began${tls}, and ` +
      'its processes know what it had before: put that back, or take another token out of the template, ' +
      'and the Pod goes on by itself'
    );
  }
  if (!isDrawn(job, secret, status.formed)) return undefined;
  return (
    `the Secret ${name} is gone, and the processes of the job know its tokens: make it again with "token" ` +
    'and "nodeToken" as a PS has them ("kubectl exec POD -- printenv KINTSUGI_TOKEN KINTSUGI_NODE_TOKEN"), ' +
    `and with the label kintsugi.dev/job=${job.metadata.name}`
  );
}
