/**
 * Where a running job puts its checkpoints, and when. The scheduler is told at the beginning of its life;
 * later the job itself is asked for the change, so that nothing has to begin again for it.
 */
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import type { Action, Observed, PlanReport } from './observed.js';

/** A change that the job refused is asked for again after it. */
const ASK_AGAIN_MS = 30_000;

type Kept = NonNullable<TrainingJobStatus['startCheckpoint']>;

/** As the spec has it. Null: none. */
export function planOf({ spec }: TrainingJob): PlanReport | null {
  if (!spec.checkpoint) return null;
  const { url, everySeconds, keep } = spec.checkpoint;
  return { url, everySeconds, keep };
}

/** What a life of the scheduler began with: `{}` without checkpoints. */
export const startPlan = (job: TrainingJob): Kept => planOf(job) ?? {};

/** How a life was begun, as flags. */
export function planFlags({ url, everySeconds, keep }: Kept): string[] {
  if (url === undefined) return [];
  return ['--checkpoint', url, '--every', `${everySeconds}s`, '--keep', String(keep)];
}

/** A directory has several names. What differs otherwise is only asked for once more. */
const plain = (url: string): string => url.replace(/^file:\/\//i, '').replace(/\/+$/, '');

/** The job has the plan that it is to have, as far as anybody knows. */
export function isPlanned({ job, report }: Pick<Observed, 'job' | 'report'>): boolean {
  if (report?.plan === undefined) return true;
  const [wanted, has] = [planOf(job), report.plan];
  if (!wanted || !has) return wanted === has;
  const same = wanted.everySeconds === has.everySeconds && wanted.keep === has.keep;
  return same && plain(wanted.url) === plain(has.url);
}

/** Nothing is asked for twice, and what was refused not at once. */
export function planning(observed: Observed): Action[] {
  const { job, report, planned, now } = observed;
  if (!report || report.redundancy === 'forming' || isPlanned(observed) || planned?.underWay) return [];
  const generation = job.metadata.generation ?? 0;
  const again = (planned?.at ?? 0) + ASK_AGAIN_MS;
  if (planned?.problem !== undefined && planned.generation === generation && now < again)
    return [{ kind: 'wake', at: again }];
  return [{ kind: 'plan', generation, plan: planOf(job) }];
}
