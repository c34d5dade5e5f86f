/**
 * Autoscalers beside the jobs that want one. A decision becomes a ScaleOut or ScaleIn. So it goes the way of
 * all others, and kubectl tells what was decided, when, and by which numbers.
 */

import { type ErrorCode, KintsugiError } from '../../common/errors.js';
import type { JobSnapshot } from '../../library/client/observe.js';
import { Observer } from '../../library/observe/observer.js';
import { Autoscaler, type DecisionRecord, decisionText } from '../autoscale/autoscaler.js';
import { policyOf } from '../autoscale/bounds.js';
import type { Provider } from '../autoscale/provider.js';
import type { Api } from './api/api.js';
import { RESOURCES } from './api/resources.js';
import type { ObjectManifest } from './objects.js';
import { JOB_LABEL, labelsOf, ownerOf } from './reconcile/names.js';
import { sameValue } from './reconcile/same.js';
import { inOrder, isOver, ownCount } from './reconcile/scaling/goal.js';
import { GROUP, type ScalerObject, type TrainingJob } from './types.js';

/** Label of objects that an autoscaler has made. */
const AUTOSCALE_LABEL = `${GROUP}/autoscale`;
const DECISION = `${GROUP}/decision`;
/** The worker that the object replaces, with another one that follows. */
const REPLACES = `${GROUP}/replaces`;
/** The same, of the object that follows. */
const REPLACED = `${GROUP}/replaced`;
/** Objects of each job that have ended and are kept. */
const KEEP = 20;

/** Codes of the reasons for which a ScaleOut or ScaleIn fails. Any other one: it made no progress. */
const FAILURES: Readonly<Record<string, ErrorCode>> = {
  ...{ DeclaredElsewhere: 'FORBIDDEN', Cancelled: 'ABORTED', JobEnded: 'CLOSED', NoJob: 'CLOSED' },
  ...{ AboveMaximum: 'BAD_ARGUMENT', BelowMinimum: 'BAD_ARGUMENT', NoSuchPod: 'BAD_ARGUMENT' },
};

/** The job, as an autoscaler talks with it. */
export interface AutoscaledJob {
  observe(options: { shards?: boolean }): Promise<JobSnapshot>;
  rebalance(): Promise<void>;
  tell(record: DecisionRecord): void;
}

export interface AutoscaleOptions {
  api: Pick<Api, 'create' | 'delete'>;
  link: AutoscaledJob;
  /** ScaleOut and ScaleIn of the job, as they are now. */
  scalers(): ScalerObject[];
  /** Milliseconds since 1970. */
  now(): number;
  log(fields: Record<string, unknown>): void;
}

type AutoscaledRole = 'ps' | 'worker';

const isOurs = ({ metadata }: ScalerObject): boolean => metadata.labels?.[AUTOSCALE_LABEL] === 'true';

/** Writes a decision as an object, and waits until that has ended. */
export class ObjectProvider implements Provider {
  private readonly waiting = new Set<() => void>();
  private made = 0;
  private stopped = false;
  /** Text of the decision that is carried out next. */
  decision = '';

  constructor(
    public job: TrainingJob,
    private readonly options: Omit<AutoscaleOptions, 'log'>,
  ) {}

  get workers(): number {
    return ownCount(this.job, 'worker');
  }

  scalePs(count: number): Promise<void> {
    return this.scale('ps', count);
  }

  scaleWorkers(count: number): Promise<void> {
    return this.scale('worker', count);
  }

  /** Adds the other worker first where maxReplicas has room for it, else last. */
  async replaceWorker(name: string): Promise<void> {
    const { maxReplicas = Number.POSITIVE_INFINITY } = this.job.spec.replicaSpecs.worker;
    const steps = ['ScaleOut', 'ScaleIn'] as const;
    const [first, second] = this.workers < maxReplicas ? steps : steps.toReversed();
    await this.replace(first!, name, REPLACES);
    await this.replace(second!, name, REPLACED);
  }

  private replace(kind: ScalerObject['kind'], name: string, as: string): Promise<void> {
    const what = kind === 'ScaleOut' ? { toAdd: { count: 1 } } : { toDelete: { podNames: [name] } };
    return this.carryOut(kind, 'worker', what, { [as]: name });
  }

  /** Whether any of the job is under way, whoever made it. */
  get busy(): boolean {
    return this.options.scalers().some((one) => !isOver(one));
  }

  /** Makes the second object of a replacement of which an operator before this one has made the first. */
  async takeOver(): Promise<void> {
    const mine = inOrder(this.options.scalers().filter(isOurs));
    const last = mine.at(-1);
    const name = last?.metadata.annotations?.[REPLACES];
    if (!last || name === undefined) return;
    if (mine.some(({ metadata }) => metadata.annotations?.[REPLACED] === name)) return;
    const { phase } = await this.ended(last.kind, last.metadata.name);
    if (phase !== 'ScaleSucceeded') return;
    this.decision = last.metadata.annotations?.[DECISION] ?? '';
    await this.replace(last.kind === 'ScaleOut' ? 'ScaleIn' : 'ScaleOut', name, REPLACED);
  }

  rebalance(): Promise<void> {
    return this.options.link.rebalance();
  }

  /** Called when the job, or one of its ScaleOut and ScaleIn, is another. */
  changed(): void {
    for (const check of [...this.waiting]) check();
  }

  stop(): void {
    this.stopped = true;
    this.changed();
  }

  private async scale(role: AutoscaledRole, count: number): Promise<void> {
    const more = count - ownCount(this.job, role);
    if (more > 0) await this.carryOut('ScaleOut', role, { toAdd: { count: more } });
    if (more < 0) await this.carryOut('ScaleIn', role, { toDelete: { count: -more } });
  }

  private async carryOut(
    kind: ScalerObject['kind'],
    role: AutoscaledRole,
    what: object,
    notes: Record<string, string> = {},
  ): Promise<void> {
    const { api, now } = this.options;
    const { namespace = '', name } = this.job.metadata;
    const { controller: _, blockOwnerDeletion: __, ...owner } = ownerOf(this.job);
    const own = `${name}-auto-${now().toString(36)}${(this.made++).toString(36)}`;
    const object: ObjectManifest = {
      ...{ apiVersion: RESOURCES[kind].apiVersion, kind },
      metadata: {
        ...{ name: own, namespace, ownerReferences: [owner] },
        labels: { ...labelsOf(this.job), [AUTOSCALE_LABEL]: 'true', [JOB_LABEL]: name },
        annotations: { [DECISION]: this.decision, ...notes },
      },
      spec: { selector: { name }, role, ...what },
    };
    await api.create(kind, object);
    await this.forgetOld();
    const { phase, reason, message } = await this.ended(kind, own);
    if (phase !== 'ScaleSucceeded')
      throw new KintsugiError(FAILURES[reason ?? ''] ?? 'TIMEOUT', `${kind} ${own}: ${reason}: ${message}`);
  }

  private ended(kind: ScalerObject['kind'], name: string): Promise<NonNullable<ScalerObject['status']>> {
    return new Promise((resolve, reject) => {
      let seen = false;
      const check = (): void => {
        const found = this.options.scalers().find((one) => one.kind === kind && one.metadata.name === name);
        const gone = seen && !found;
        seen ||= found !== undefined;
        if (!this.stopped && !gone && !(found && isOver(found))) return;
        this.waiting.delete(check);
        if (found?.status && isOver(found)) resolve(found.status);
        else reject(new KintsugiError('CLOSED', `nobody waits for ${kind} ${name} any more`));
      };
      this.waiting.add(check);
      check();
    });
  }

  private async forgetOld(): Promise<void> {
    const mine = this.options.scalers().filter((one) => isOurs(one) && isOver(one));
    for (const { kind, metadata } of inOrder(mine).slice(0, -KEEP))
      await this.options.api.delete(kind, metadata.namespace ?? '', metadata.name).catch(() => {});
  }
}

/** The autoscaler of one job. */
export class JobAutoscale {
  private readonly provider: ObjectProvider;
  private readonly observer: Observer;
  private readonly autoscaler: Autoscaler;

  constructor(
    private readonly job: TrainingJob,
    options: AutoscaleOptions,
  ) {
    this.provider = new ObjectProvider(job, options);
    this.observer = new Observer(options.link, { intervalMs: job.spec.autoscale!.lookSeconds * 1000 });
    this.autoscaler = new Autoscaler({
      ...{ observer: this.observer, policy: policyOfJob(job), provider: this.provider },
      onDecision: (record) => {
        this.provider.decision = decisionText(record.decision);
        options.log({ decision: this.provider.decision });
        options.link.tell(record);
      },
      onDone: ({ decision, problem }) => {
        if (problem !== undefined) options.log({ decision: `no ${decision.kind}: ${problem}` });
      },
    });
    this.autoscaler.start();
    this.observer.start();
  }

  /** Takes a newer version of the job. False: it wants another autoscaler. */
  update(job: TrainingJob): boolean {
    if (!sameValue(policyOfJob(job), policyOfJob(this.job))) return false;
    this.provider.job = job;
    this.provider.changed();
    return true;
  }

  async stop(): Promise<void> {
    this.provider.stop();
    await this.observer.stop();
    await this.autoscaler.stop();
  }
}

/** The policy for a job. Bounds are those of its roles; a role that is not to be scaled stays as it is. */
function policyOfJob(job: TrainingJob) {
  const { code, replicaSpecs, autoscale } = job.spec;
  const { settleSeconds, windowSeconds, retrySeconds, budgetPerHour, roles } = autoscale!;
  const { ps, worker } = replicaSpecs;
  const fixed = (count: number) => ({ least: count, most: count });
  const least = Math.max(ps.minReplicas ?? 0, code.k + code.r);
  const bounds = {
    ps: roles.includes('ps') ? { least, most: ps.maxReplicas ?? least } : fixed(ownCount(job, 'ps')),
    ...(roles.includes('worker')
      ? { workers: { least: Math.max(1, worker.minReplicas ?? 1), most: worker.maxReplicas ?? 1 } }
      : {}),
  };
  return policyOf(bounds, {
    ...{ settle: settleSeconds, window: windowSeconds, retry: retrySeconds, budgetPerHour },
  });
}
