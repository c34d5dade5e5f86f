/**
 * A scheduler that has found the state of another job at its place, and refuses it. The job waits until its
 * spec says what is to become of that state.
 */
import type { ObjectCondition } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { type Census, inState, lastError, type Member } from './census.js';
import { deletion } from './deletion.js';
import { CONTAINER } from './names.js';
import type { Action, ObservedJob } from './observed.js';

const FOREIGN_ENV = 'KINTSUGI_FOREIGN_STATE';
export const FOREIGN_CONDITION = 'ForeignState';

const WHAT_TO_DO =
  'spec.scheduler.foreignState says what becomes of it: "adopt" goes on with it, "discard" deletes it and ' +
  'begins anew';

/** Variables that tell a scheduler whose job it has. An older image ignores them. */
export function ownerEnvironment({ metadata, spec }: TrainingJob): { name: string; value: string }[] {
  const { foreignState = 'refuse' } = spec.scheduler;
  return [
    ...(metadata.uid === undefined ? [] : [{ name: 'KINTSUGI_JOB_UID', value: metadata.uid }]),
    ...(foreignState === 'refuse' ? [] : [{ name: FOREIGN_ENV, value: foreignState }]),
  ];
}

const refuses = ({ ready, exit }: Member): boolean => !ready && lastError(exit)?.code === 'FOREIGN_STATE';

/** The choice that a Pod was told about the state of another job. */
function choiceOf({ pod }: Member): string {
  const container = pod.spec.containers?.find(({ name }) => name === CONTAINER);
  return container?.env?.findLast(({ name }) => name === FOREIGN_ENV)?.value ?? 'refuse';
}

/** The condition of a job whose place has the state of another one; undefined: it never had. */
export function foreignCondition(
  { job, report }: Pick<ObservedJob, 'job' | 'report'>,
  census: Census,
): ObjectCondition | undefined {
  const type = FOREIGN_CONDITION;
  // A scheduler that leads has settled it, and those that stand by may have refused before.
  const settled = report !== undefined || census.scheduler.some(({ ready }) => ready);
  const refused = settled ? undefined : inState(census.scheduler, 'active', 'failed').find(refuses);
  if (refused) {
    const [what = ''] = (lastError(refused.exit)?.message ?? '').split(' What to do: ');
    return { type, status: 'True', reason: 'Refused', message: `${refused.name}: ${what} ${WHAT_TO_DO}` };
  }
  const before = job.status?.conditions?.find((one) => one.type === type);
  if (before === undefined) return undefined;
  // Between two attempts of a scheduler nothing is known.
  return settled ? { type, status: 'False', reason: 'Settled' } : before;
}

/**
 * Deletes schedulers that refuse and have not heard the choice of the spec. A StatefulSet does not replace a
 * Pod that was never ready, whatever becomes of its template.
 */
export function retold({ job }: Pick<ObservedJob, 'job'>, census: Census): Action[] {
  const { foreignState = 'refuse' } = job.spec.scheduler;
  return inState(census.scheduler, 'active', 'failed')
    .filter((one) => refuses(one) && choiceOf(one) !== foreignState)
    .map((one) => ({ ...deletion(one, 1), asObserved: true as const }));
}
