/**
 * The plan of the checkpoints of a running job: their place, and how often. The scheduler is told at the
 * beginning of its life. Later the job itself is asked for a change, so that nothing has to begin again for
 * it.
 */
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import type { Action, ObservedJob, PlanReport } from './observed.js';

/** Milliseconds until a change that the job refused is asked for again. */
const ASK_AGAIN_MS = 30_000;

type Kept = NonNullable<TrainingJobStatus['startCheckpoint']>;

/** The plan of the spec; null: none. */
function planOf({ spec }: TrainingJob): PlanReport | null {
  if (!spec.checkpoint) return null;
  const { url, everySeconds, keep } = spec.checkpoint;
  return { url, everySeconds, keep };
}

/** The plan that a life of the scheduler begins with: `{}` without checkpoints. */
export const startPlan = (job: TrainingJob): Kept => planOf(job) ?? {};

/** The plan as flags of the scheduler. */
export function planFlags({ url, everySeconds, keep }: Kept): string[] {
  if (url === undefined) return [];
  return ['--checkpoint', url, '--every', `${everySeconds}s`, '--keep', String(keep)];
}

/** A directory has several names: this is one. Any other difference only leads to one more request. */
const plain = (url: string): string => url.replace(/^file:\/\//i, '').replace(/\/+$/, '');

/** Whether the job has the plan that it is to have, as far as anybody knows. */
export function isPlanned({ job, report }: Pick<ObservedJob, 'job' | 'report'>): boolean {
  if (report?.plan === undefined) return true;
  const [wanted, has] = [planOf(job), report.plan];
  if (!wanted || !has) return wanted === has;
  const same = wanted.everySeconds === has.everySeconds && wanted.keep === has.keep;
  return same && plain(wanted.url) === plain(has.url);
}

/** Asks the job for its plan: never twice, and after a refusal not at once. */
export function planning(observed: ObservedJob): Action[] {
  const { job, report, planned, now } = observed;
  if (!report || report.redundancy === 'forming' || isPlanned(observed) || planned?.underWay) return [];
  const generation = job.metadata.generation ?? 0;
  const again = (planned?.at ?? 0) + ASK_AGAIN_MS;
  if (planned?.problem !== undefined && planned.generation === generation && now < again)
    return [{ kind: 'wake', at: again }];
  return [{ kind: 'plan', generation, plan: planOf(job) }];
}
