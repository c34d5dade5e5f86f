/**
 * A scheduler that has found the state of another job at its place, and refuses it. The job waits until its
 * spec says what is to become of that state.
 */
import type { EnvVar, ObjectCondition } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { type Census, inState, isLed, lastError, type Member, refusalWords } from './census.js';
import { deletion } from './deletion.js';
import { guardEnvironment } from './guard.js';
import { CONTAINER } from './names.js';
import type { Action, ObservedJob } from './observed.js';

/** Variable of a scheduler with the uid of its job. */
export const JOB_UID_ENV = 'KINTSUGI_JOB_UID';
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

/** Variables that tell a scheduler whose job it has, and whether that has begun. Older images ignore them. */
export function ownerEnvironment(job: TrainingJob, life: number): EnvVar[] {
  const { uid } = job.metadata;
  const choice = toldChoice(job, life);
  return [
    ...(uid === undefined ? [] : [{ name: JOB_UID_ENV, value: uid }]),
    ...(choice === 'refuse' ? [] : [{ name: FOREIGN_ENV, value: choice }]),
    guardEnvironment(job, life),
  ];
}

const CODE = 'FOREIGN_STATE';

const refuses = ({ ready, exit }: Member): boolean => !ready && lastError(exit)?.code === CODE;

/** The choice that a Pod was told about the state of another job. */
function choiceOf({ pod }: Member): string {
  const container = pod.spec.containers?.find(({ name }) => name === CONTAINER);
  return container?.env?.findLast(({ name }) => name === FOREIGN_ENV)?.value ?? 'refuse';
}

/** The condition of a job whose place has the state of another one; undefined: it never had. */
export function foreignCondition(
  observed: Pick<ObservedJob, 'job' | 'report'>,
  census: Census,
): ObjectCondition | undefined {
  const { job } = observed;
  const type = FOREIGN_CONDITION;
  const words = refusalWords(observed, census, CODE);
  if (words !== undefined) {
    const advice = (job.status?.life ?? 1) > 1 ? RESUMED : WHAT_TO_DO;
    return { type, status: 'True', reason: 'Refused', message: `${words} ${advice}` };
  }
  const before = job.status?.conditions?.find((one) => one.type === type);
  if (before === undefined) return undefined;
  // Between two attempts of a scheduler nothing is known.
  return isLed(observed, census) ? { type, status: 'False', reason: 'Settled' } : before;
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
