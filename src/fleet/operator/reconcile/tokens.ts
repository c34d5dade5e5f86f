/**
 * Tokens of a job that has formed. Its processes have read them when they began. A Pod that is made after the
 * Secret was changed has others, and the job refuses it. That is no failure of the job, and others drawn at
 * random would not help.
 */
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import { type Census, inState, lastError, type Member } from './census.js';
import { secretName } from './names.js';
import type { ObservedJob } from './observed.js';

/** Whether its process was refused for its token, or its certificate. */
const isRefused = ({ ready, exit }: Member): boolean => !ready && lastError(exit)?.code === 'UNAUTHORIZED';

/** Members that a job that has formed refuses. */
export const refusedMembers = ({ formed = false }: TrainingJobStatus, census: Census): Member[] =>
  formed
    ? inState([...census.scheduler, ...census.ps, ...census.worker], 'active', 'failed').filter(isRefused)
    : [];

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
  const [first] = refusedMembers(status, census);
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
