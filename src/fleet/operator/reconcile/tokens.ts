/**
 * Tokens of a job that has formed. Its processes have read them when they began. A Pod that is made after the
 * Secret was changed has others, and the job refuses it. That is no failure of the job, and others drawn at
 * random would not help.
 */
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import { type Census, containerIn, inState, lastError, type Member } from './census.js';
import { secretName } from './names.js';
import type { ObservedJob } from './observed.js';

/** Whether its process was refused for its token, or its certificate. */
const isRefused = ({ ready, exit }: Member): boolean => !ready && lastError(exit)?.code === 'UNAUTHORIZED';

/** Members that a job that has formed refuses. */
export const refusedMembers = (
  { formed = false }: Pick<TrainingJobStatus, 'formed'>,
  census: Census,
): Member[] =>
  formed
    ? inState([...census.scheduler, ...census.ps, ...census.worker], 'active', 'failed').filter(isRefused)
    : [];

/** When the process of a Pod has begun. Milliseconds since 1970; undefined: none runs. */
const startOf = ({ pod }: Member): number | undefined => {
  const at = containerIn(pod)?.state?.running?.startedAt;
  return at === undefined ? undefined : Date.parse(at);
};

/** Whether a process that began later serves: the tokens are right again. Failed Pods stay for their logs. */
function isPast({ state, exit }: Member, all: readonly Member[]): boolean {
  const end = Date.parse(exit?.finishedAt ?? '');
  return state === 'failed' && all.some((one) => one.ready && (startOf(one) ?? 0) > end);
}

/** Whether the Secret that the operator has drawn is gone, and the processes that know its tokens are not. */
export const isDrawn = (job: TrainingJob, secret: boolean, formed = false): boolean =>
  !secret && !job.spec.auth && formed;

/** The problem with the tokens, and what to do. Undefined: none is known. */
export function tokenProblem(
  { job, secret }: Pick<ObservedJob, 'job' | 'secret'>,
  census: Census,
  status: TrainingJobStatus,
): string | undefined {
  const name = secretName(job);
  const all = Object.values(census).flat();
  const first = refusedMembers(status, census).find((one) => !isPast(one, all));
  if (first) {
    const { code, message } = lastError(first.exit)!;
    const tls = job.spec.tls ? `, or the certificate of Secret ${job.spec.tls.secretName}` : '';
    return (
      `${first.name}: ${code}: ${message}: the Secret ${name} has changed since the job began${tls}, and ` +
      'its processes know what it had before: put that back, and the Pod goes on by itself'
    );
  }
  if (!isDrawn(job, secret, status.formed)) return undefined;
  return (
    `the Secret ${name} is gone, and the processes of the job know its tokens: make it again with "token" ` +
    'and "nodeToken" as a PS has them ("kubectl exec POD -- printenv KINTSUGI_TOKEN KINTSUGI_NODE_TOKEN"), ' +
    `and with the label kintsugi.dev/job=${job.metadata.name}`
  );
}
