/**
 * Results of a job: in its status, and with the whole report in a ConfigMap. Two tell of them. The scheduler
 * knows the books of samples, and is asked before its Pod goes: until it has answered the job has not ended.
 * A worker knows its loss and what its test gave, and leaves both in the message of its Pod about its end.
 */
import type { ObjectManifest } from '../objects.js';
import type { TrainingJobStatus } from '../types.js';
import { type Census, endedAt, inState, type Member } from './census.js';
import { labelsOf, metaOf } from './names.js';
import { type Action, type ObservedJob, type RefusedObject, refusedConfigMap } from './observed.js';
import { finishedWorkers, type ReconcileVerdict } from './verdict.js';

/** A scheduler that does not answer at the end of the training is waited for so long. */
const AWAY_MS = 60_000;
/** An answer that is older than this may be from before the job went on. */
const FRESH_MS = 120_000;
/** A ConfigMap has at most 1 MiB with its names. */
const MOST_BYTES = 2 ** 20 - 2 ** 12;
const FILE = 'report.json';

type JobResults = NonNullable<TrainingJobStatus['results']>;
type End = Extract<ReconcileVerdict, { ended: true }>;

const lastEnd = (members: readonly Member[]): number => Math.max(0, ...members.map(endedAt));

/** Actions that come before the end of the job. Undefined: it ends now. */
export function gathering(
  { job, told, report, asking, now }: ObservedJob,
  verdict: ReconcileVerdict,
  census: Census,
): Action[] | undefined {
  if (!verdict.ended) return undefined;
  if (told?.underWay) return [];
  if (told && now - told.at < FRESH_MS) return undefined;
  if (report) return [{ kind: 'gather', digest: job.spec.results?.digest ?? false }];
  if (asking) return [];
  const until = verdict.phase === 'Succeeded' ? lastEnd(finishedWorkers(census)) + AWAY_MS : 0;
  return now < until ? [{ kind: 'wake', at: until }] : undefined;
}

/** The JSON that a process has left at its end. Anything else that a program says is no result. */
function writtenBy({ exit }: Member): Record<string, unknown> {
  const text = exit?.message?.trim() ?? '';
  if (!text.startsWith('{')) return {};
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}

const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
/** A number with six digits behind the point. */
const short = (value: number): number => Math.round(value * 1e6) / 1e6;

/** Results that workers have written. The last test counts: it has the most training behind it. */
function written(members: readonly Member[]): JobResults {
  const all = [...members].sort((a, b) => lastEnd([a]) - lastEnd([b])).map((member) => writtenBy(member));
  const last = (name: string): number | undefined => all.map((one) => one[name]).findLast(isNumber);
  const [auc, logloss] = [last('auc'), last('logloss')];
  const trained = all.flatMap(({ samples, trainLoss }) =>
    isNumber(samples) && isNumber(trainLoss) && samples > 0 ? [{ samples, trainLoss }] : [],
  );
  const samples = trained.reduce((sum, one) => sum + one.samples, 0);
  const loss = trained.reduce((sum, one) => sum + one.trainLoss * one.samples, 0);
  return {
    ...(auc === undefined ? {} : { auc: short(auc) }),
    ...(logloss === undefined ? {} : { logloss: short(logloss) }),
    ...(samples === 0 ? {} : { trainLoss: short(loss / samples) }),
  };
}

/** Workers whose process has ended by itself, whatever came of it. */
const endedWorkers = (census: Census): Member[] => [
  ...finishedWorkers(census),
  ...inState(census.worker, 'failed'),
];

/** Name of the ConfigMap with the report. */
const reportName = ({ metadata }: ObservedJob['job']): string => `${metadata.name}-results`;

/** The report that the API server did not take when it was last asked to. */
const refusedReport = (observed: ObservedJob): RefusedObject | undefined =>
  refusedConfigMap(observed, reportName(observed.job));

/** Results of a job that ends now. */
export function resultsOf(
  observed: ObservedJob,
  census: Census,
  { startTime }: { startTime: string },
): JobResults {
  const { job, now, told } = observed;
  const { findings } = told ?? {};
  const refusal = refusedReport(observed);
  const silence = told?.problem ?? 'no scheduler answers';
  const missing = findings ? findings.problem : `the job has not told its books: ${silence}`;
  return {
    ...written(endedWorkers(census)),
    ...findings?.results,
    durationSeconds: Math.max(0, Math.round((now - Date.parse(startTime)) / 1000)),
    ...(refusal ? { reportRefused: refusal.message } : { configMap: reportName(job) }),
    ...(missing === undefined ? {} : { message: missing }),
  };
}

const textOf = (report: object): string =>
  JSON.stringify(report, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value), 1);

/** The report as text, without its largest sections where all of them would be too long. */
function fitted(head: object, sections: Readonly<Record<string, unknown>>): string {
  const whole = textOf({ ...head, ...sections });
  let text = whole;
  const left = { ...sections };
  const bytes = Buffer.byteLength(whole);
  const dropped: string[] = [];
  const sizes = Object.entries(sections).map(([name, value]) => [name, textOf({ value }).length] as const);
  for (const [name] of sizes.sort(([, a], [, b]) => b - a)) {
    if (Buffer.byteLength(text) <= MOST_BYTES) break;
    delete left[name];
    dropped.push(name);
    const cut =
      `The whole report has ${bytes} bytes, and a ConfigMap has at most 1 MiB: ` +
      `${dropped.join(', ')} are left out.`;
    text = textOf({ ...head, cut, ...left });
  }
  return text;
}

/** The ConfigMap with the report about a job that has ended with this status and message. */
function reportOf(
  { job, told }: ObservedJob,
  census: Census,
  status: TrainingJobStatus,
  message: string,
  cut?: string,
): ObjectManifest {
  const { spec } = job;
  const { name, namespace = '', uid, generation } = job.metadata;
  const { phase, startTime, completionTime, results, restartCount, restarts, life, memory } = status;
  const head = {
    job: { name, namespace, uid, generation, image: spec.image, code: spec.code },
    ...{ phase, reason: status.reason, message, startTime, completionTime, results },
    ...{ life, restartCount, restarts, memory },
    ...(cut === undefined ? {} : { cut }),
  };
  const workers = endedWorkers(census).map((member) => ({
    ...{ name: member.name, exitCode: member.exit?.exitCode, finishedAt: member.exit?.finishedAt },
    ...writtenBy(member),
  }));
  const sections = { workersEnded: workers, conditions: status.conditions, ...told?.findings?.report };
  const { ownerReferences, ...meta } = metaOf(job, reportName(job));
  const owned = spec.results?.deletionPolicy === 'Retain' ? {} : { ownerReferences: ownerReferences ?? [] };
  return {
    ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { ...meta, labels: labelsOf(job), ...owned } },
    data: { [FILE]: fitted(head, sections) },
  };
}

const OF_ANOTHER =
  'The job told its books to another operator, which is gone: this has what the status and the Pods have.';

/**
 * The report of a job that ends now: only this pass knows all of it, and a later one would find a job that
 * has ended. One that was refused does not keep the job from its end.
 */
export function firstReport(
  observed: ObservedJob,
  census: Census,
  status: TrainingJobStatus,
  end: End,
): Action[] {
  if (refusedReport(observed)) return [];
  return [{ kind: 'report', object: reportOf(observed, census, status, end.message) }];
}

/** The report of a job that has ended without it, and the status that names it. */
export function lateReport(observed: ObservedJob, census: Census, status: TrainingJobStatus): Action[] {
  const { job } = observed;
  const { reportRefused, ...results } = status.results ?? {};
  if (reportRefused === undefined) return [];
  const named = { ...status, results: { ...results, configMap: reportName(job) } };
  // The operator that was refused has all of it.
  const message = status.conditions?.find(({ type }) => type === status.phase)?.message ?? '';
  const kept = refusedReport(observed)?.object as ObjectManifest | undefined;
  const object = kept ?? reportOf(observed, census, named, message, OF_ANOTHER);
  return [
    { kind: 'report', object },
    { kind: 'status', status: named },
  ];
}
