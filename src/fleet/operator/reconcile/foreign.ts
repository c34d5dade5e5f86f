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

const FIELD = 'spec.scheduler.foreignState';
const WHAT_TO_DO = `${FIELD} says what becomes of it: "adopt" keeps it, "discard" deletes it and begins anew`;
const RESUMED =
  `a job that was suspended adopts nothing: ${FIELD} "discard" deletes it and goes on ` +
  'with the checkpoint of this job';

/** The choice that a scheduler is told. The first life may adopt: any other one begins with a checkpoint. */
function toldChoice({ spec }: TrainingJob, life: number): string {
  const { foreignState = 'refuse' } = spec.scheduler;
  return foreignState === 'adopt' && life > 1 ? 'refuse' : foreignState;
}

/** Variables that tell a scheduler whose job it has. An older image ignores them. */
export function ownerEnvironment(job: TrainingJob, life: number): { name: string; value: string }[] {
  const { uid } = job.metadata;
  const choice = toldChoice(job, life);
  return [
    ...(uid === undefined ? [] : [{ name: 'KINTSUGI_JOB_UID', value: uid }]),
    ...(choice === 'refuse' ? [] : [{ name: FOREIGN_ENV, value: choice }]),
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
    const advice = (job.status?.life ?? 1) > 1 ? RESUMED : WHAT_TO_DO;
    return { type, status: 'True', reason: 'Refused', message: `${refused.name}: ${what} ${advice}` };
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
  const choice = toldChoice(job, job.status?.life ?? 1);
  return inState(census.scheduler, 'active', 'failed')
    .filter((one) => refuses(one) && choiceOf(one) !== choice)
    .map((one) => ({ ...deletion(one, 1), asObserved: true as const }));
}
