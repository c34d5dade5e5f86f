/**
 * Whether the job answers, and since when not. A Pod may be ready on a machine that has vanished: only an
 * answer proves that somebody serves.
 */
import type { ObjectCondition } from '../objects.js';
import type { JobPhase, TrainingJobStatus } from '../types.js';
import type { Census } from './census.js';
import type { ObservedJob } from './observed.js';
import { timeOf } from './time.js';

/** The time is written so often while the job answers. Nobody needs it then, and each write is a request. */
const NOTED_MS = 120_000;

type Told = Pick<ObjectCondition, 'type' | 'status' | 'reason' | 'message'>;

/** When the job answered last, as the status has it. */
export function lastHeardOf({
  job,
  now,
  report,
  heardAt,
}: ObservedJob): Pick<TrainingJobStatus, 'lastHeard'> {
  const noted = job.status?.lastHeard;
  const at = heardAt ?? (report ? now : undefined);
  const noting = noted === undefined || at === undefined ? 0 : at - Date.parse(noted);
  if (at === undefined || (report && noted !== undefined && noting < NOTED_MS))
    return noted === undefined ? {} : { lastHeard: noted };
  return { lastHeard: timeOf(at) };
}

/** Conditions that only an answer of the job makes true. `pauses`: it is to have no scheduler. */
export function hearing(
  observed: ObservedJob,
  census: Census,
  phase: JobPhase,
  pauses: boolean,
): ObjectCondition[] {
  const { job, report, asking } = observed;
  const { lastHeard } = lastHeardOf(observed);
  const runs = phase === 'Running' || phase === 'Scaling';
  const ready = census.scheduler.some((one) => one.ready && one.state === 'active');
  const silent = lastHeard ? `no answer since ${lastHeard}` : 'it has not answered yet';
  const told = (type: string, status: boolean | undefined, reason: string, message?: string): Told => ({
    ...{ type, status: status === undefined ? 'Unknown' : status ? 'True' : 'False', reason },
    ...(message === undefined ? {} : { message }),
  });
  const conditions: Told[] = report
    ? [
        told('Reachable', true, 'Answers'),
        told('SchedulerReady', true, 'Serving'),
        told('Running', runs, phase),
      ]
    : [
        told('Reachable', false, pauses ? 'Paused' : 'NoAnswer', pauses ? undefined : silent),
        told('SchedulerReady', false, ready ? 'NoAnswer' : 'NotReady', ready ? silent : undefined),
        runs ? told('Running', undefined, 'NoAnswer', silent) : told('Running', false, phase),
      ];
  if (!asking) return conditions;
  // An operator that begins has not asked yet: what was known holds until the job was asked.
  const known = new Map(job.status?.conditions?.map((one) => [one.type, one]));
  return conditions.map((one) => known.get(one.type) ?? { ...one, status: 'Unknown', reason: 'NotAsked' });
}
