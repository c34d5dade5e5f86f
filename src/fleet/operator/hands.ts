/** Carries out what a pass has decided: requests to the API server, in the order of the decision. */

import { randomBytes } from 'node:crypto';
import { describe } from '../../common/errors.js';
import type { Logger } from '../../net/log.js';
import { type Api, ApiError, hasStatus } from './api/api.js';
import { type ResourceKind, resourceOf } from './api/resources.js';
import { JobEvents } from './events.js';
import type { KubeNode, KubeObject, ObjectManifest, Pod } from './objects.js';
import { isOfEarlier } from './ownership.js';
import { isGone } from './reconcile/apart.js';
import { INDEX_LABEL, JOB_LABEL, ownerOf, REDUNDANT_GATE } from './reconcile/names.js';
import type { Action } from './reconcile/observed.js';
import { released } from './reconcile/queueing.js';
import { STATE_FINALIZER } from './reconcile/remains.js';
import { scalingManager } from './reconcile/scaling/declared.js';
import type { LoneAction } from './reconcile/scaling/lone.js';
import { FINALIZER } from './reconcile/scaling/scalers.js';
import { timeOf } from './reconcile/time.js';
import { RefusedObjects } from './refusals.js';
import type { ScalerObject, TrainingJob } from './types.js';

export interface HandsOptions {
  api: Api;
  log: Logger;
  /** Milliseconds since 1970. */
  now(): number;
  /** Called with each written object, as the server has answered it. */
  onWritten(kind: ResourceKind, object: KubeObject): void;
  onAsk(job: TrainingJob, ask: Extract<Action, { kind: 'ask' }>): void;
  onCheckpoint(job: TrainingJob, generation: number): void;
  onPlan(job: TrainingJob, plan: Extract<Action, { kind: 'plan' }>): void;
  onGather(job: TrainingJob, gather: Extract<Action, { kind: 'gather' }>): void;
  onWake(job: TrainingJob, at: number): void;
}

const CREATE_ATTEMPTS = 3;
/** Status codes of a refused object: a template that is not valid, a quota, a policy. */
const REFUSALS: readonly number[] = [400, 403, 422];
/** A field that is not known in an object that is applied. The server answers 500 to that. */
const UNKNOWN_FIELD = /failed to create typed patch object .*field not declared in schema/;

/** A StatefulSet whose strategy the server has made up rolls, and is applied as one that does not. */
const ROLLING = /updateStrategy\.rollingUpdate: Invalid value/;

type Making = Extract<Action, { kind: 'apply' | 'report' | 'create' | 'secret' | 'try' }>;
const MAKING: ReadonlySet<string> = new Set(['apply', 'report', 'create', 'secret', 'try']);
/** Reason of a refusal of the operator's own: the object is there, and belongs to somebody else. */
const FOREIGN = 'Foreign';

export const isMaking = (action: Action): action is Making => MAKING.has(action.kind);

export const isRefusal = (error: unknown): error is ApiError =>
  error instanceof ApiError &&
  (REFUSALS.includes(error.status) || error.reason === FOREIGN || UNKNOWN_FIELD.test(error.message));

interface Removal {
  graceSeconds?: number | undefined;
  asObserved?: true | undefined;
}

/** The one field of a job that is applied to change a count, on the version that was observed. */
function resized(job: TrainingJob, { role, replicas }: Extract<Action, { kind: 'resize' }>): ObjectManifest {
  const { apiVersion, kind, metadata } = job;
  const { name, namespace = '', uid = '', resourceVersion = '' } = metadata;
  return {
    ...{ apiVersion, kind, metadata: { name, namespace, uid, resourceVersion } },
    spec: { replicaSpecs: { [role]: { replicas } } },
  };
}

/** A ScaleOut or ScaleIn that goes with the job, and is found by its label. */
function adopted(job: TrainingJob, scaler: ScalerObject): ScalerObject {
  const { metadata } = scaler;
  const { controller: _, blockOwnerDeletion: __, ...owner } = ownerOf(job);
  const owners = metadata.ownerReferences ?? [];
  const owned = owners.some(({ uid }) => uid === owner.uid);
  return {
    ...scaler,
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, [JOB_LABEL]: job.metadata.name },
      finalizers: [...(metadata.finalizers ?? []), FINALIZER],
      ownerReferences: owned ? owners : [...owners, owner],
    },
  };
}

function letGo(scaler: ScalerObject): ScalerObject {
  const finalizers = scaler.metadata.finalizers?.filter((one) => one !== FINALIZER) ?? [];
  return { ...scaler, metadata: { ...scaler.metadata, finalizers } };
}

function held(job: TrainingJob, on: boolean): TrainingJob {
  const others = job.metadata.finalizers?.filter((one) => one !== STATE_FINALIZER) ?? [];
  const finalizers = on ? [...others, STATE_FINALIZER] : others;
  return { ...job, metadata: { ...job.metadata, finalizers } };
}

export class Hands {
  readonly refusals = new RefusedObjects();
  private readonly events: JobEvents;

  constructor(private readonly options: HandsOptions) {
    this.events = new JobEvents(options);
  }

  /** Carries out one action. Resolves with the job as it is then. */
  async do(job: TrainingJob, action: Action): Promise<TrainingJob> {
    if (action.kind === 'status')
      // The write names the version that was observed. Where that is out of date, it fails and the pass ends.
      return this.replace('TrainingJob', { ...job, status: action.status }, 'status');
    if (action.kind === 'hold') return this.replace('TrainingJob', held(job, action.held));
    if (action.kind === 'resize') return this.resize(job, action);
    try {
      await this.other(job, action);
      if (isMaking(action)) this.taken(job, action);
    } catch (error) {
      if (isMaking(action) && isRefusal(error))
        await this.refused(job, action.object, error, action.kind === 'try');
      throw error;
    }
    return job;
  }

  private taken(job: TrainingJob, { kind, object }: Making): void {
    this.refusals.taken(job, object);
    // The Pod that would be taken is made in the next pass. That of a scheduler is made by somebody else.
    const asked = kind === 'try' && object.metadata.labels?.[INDEX_LABEL] !== undefined;
    if (asked) this.options.onWake(job, this.options.now());
  }

  /**
   * Notes a refusal, and tells of it. Nobody else tells the user that a template is wrong, or that a quota is
   * used up.
   */
  private async refused(job: TrainingJob, object: KubeObject, error: ApiError, tried = false): Promise<void> {
    const { status, message, doubtful } = error;
    this.refusals.note(job, { object, status, message, unmade: !doubtful, tried });
    const { kind, metadata } = object;
    // The same is told of the next Pod, and with other numbers.
    const same = `${kind} ${message.replaceAll(metadata.name, '').replace(/\d+/g, '#')}`;
    const text = `the API server does not take ${kind} ${metadata.name}: ${message}`;
    await this.events.tellAgain(job, { type: 'Warning', reason: 'Refused', message: text }, same);
  }

  /** The job is gone. */
  forget(namespace: string, name: string): void {
    this.refusals.forget(namespace, name);
    this.events.forget(namespace, name);
  }

  /** Carries out an action that needs no job. */
  async lone(action: LoneAction): Promise<void> {
    const { scaler } = action;
    if (action.kind === 'letGo') await this.replace(scaler.kind, letGo(scaler));
    else await this.replace(scaler.kind, { ...scaler, status: action.status } as ScalerObject, 'status');
  }

  private async other(job: TrainingJob, action: Exclude<Action, { kind: 'status' | 'resize' | 'hold' }>) {
    const { onWake, onAsk, onCheckpoint, onPlan, onGather } = this.options;
    switch (action.kind) {
      case 'secret': {
        const values = action.keys.map((name) => [name, randomBytes(32).toString('base64url')]);
        await this.create('Secret', { ...action.object, stringData: Object.fromEntries(values) });
        return;
      }
      case 'create':
        this.refusals.asks(job, action.object);
        await this.create('Pod', action.object);
        return;
      case 'gate':
        await this.gate(action);
        return;
      case 'adopt':
        await this.replace(action.scaler.kind, adopted(job, action.scaler));
        return;
      case 'letGo':
      case 'scalerStatus':
        await this.lone(action);
        return;
      case 'apply':
      case 'report':
        await this.notForeign(job, action.object);
        await this.apply(action.object);
        return;
      case 'delete': {
        const { metadata } = action.object;
        const { graceSeconds, asObserved, ifGone } = action;
        if (ifGone !== undefined && !(await this.isGone(ifGone))) return;
        const kind = resourceOf(action.object);
        if (kind) await this.remove(kind, metadata, { graceSeconds, asObserved });
        return;
      }
      case 'release':
        await this.release(action.workload);
        return;
      case 'queueStatus':
        await this.replace('Workload', { ...action.workload, status: action.status } as KubeObject, 'status');
        return;
      case 'ask':
        onAsk(job, action);
        return;
      case 'checkpoint':
        onCheckpoint(job, action.generation);
        return;
      case 'plan':
        onPlan(job, action);
        return;
      case 'gather':
        onGather(job, action);
        return;
      case 'try':
        await this.attempt(action.object);
        return;
      case 'event':
        if (action.counted) await this.events.tellAgain(job, action, action.reason);
        else await this.events.tell(job, action);
        return;
      case 'wake':
        onWake(job, action.at);
        return;
    }
  }

  /**
   * Creates an object. When the answer to an attempt is missing, the next attempt shows whether the object
   * was made. Without that another Pod would be made beside it, under the next index.
   */
  private async create(kind: 'Pod' | 'Secret', object: ObjectManifest): Promise<void> {
    const { name, namespace } = object.metadata;
    for (let attempt = 1; ; attempt++) {
      try {
        const made = await this.options.api.create(kind, object);
        this.options.onWritten(kind, made);
        this.options.log.info('operator.created', { kind, namespace, object: name });
        return;
      } catch (error) {
        // An earlier attempt has made it, or an earlier job of this name.
        if (hasStatus(error, 409)) return this.noteMade(kind, namespace, name);
        const passing = error instanceof ApiError && (error.status === 0 || error.status >= 500);
        if (passing && attempt < CREATE_ATTEMPTS) continue;
        if (error instanceof ApiError) error.doubtful = attempt > 1;
        throw error;
      }
    }
  }

  /** A Pod of the same name is an answer, too: it was taken. */
  private async attempt(object: ObjectManifest): Promise<void> {
    try {
      await this.options.api.create('Pod', object, { dryRun: true });
    } catch (error) {
      if (!hasStatus(error, 409)) throw error;
    }
  }

  private async noteMade(kind: ResourceKind, namespace: string | undefined, name: string): Promise<void> {
    if (kind === 'Pod') this.options.onWritten(kind, await this.options.api.get(kind, namespace, name));
  }

  private async resize(job: TrainingJob, action: Extract<Action, { kind: 'resize' }>): Promise<TrainingJob> {
    const object = resized(job, action);
    try {
      const answer = await this.options.api.apply<TrainingJob>(
        ...(['TrainingJob', object, scalingManager(action.role)] as const),
      );
      this.refusals.taken(job, object);
      this.options.onWritten('TrainingJob', answer);
      return answer;
    } catch (error) {
      if (isRefusal(error)) await this.refused(job, object, error);
      throw error;
    }
  }

  /**
   * An apply takes over what is there under that name, and it would go with the job. So an object that does
   * not say that it is of a job of this name is left alone, and so is one of an earlier job of this name.
   * @throws a refusal
   */
  private async notForeign(job: TrainingJob, object: ObjectManifest): Promise<void> {
    const kind = resourceOf(object);
    if (kind === undefined) return;
    const { namespace, name } = object.metadata;
    try {
      const there = await this.options.api.get(kind, namespace, name);
      if (isOfEarlier(there, job))
        throw new ApiError(409, FOREIGN, `the ${object.kind} of this name is of an earlier job of this name`);
      if (there.metadata.labels?.[JOB_LABEL] === job.metadata.name) return;
    } catch (error) {
      if (hasStatus(error, 404)) return;
      throw error;
    }
    const what = `there is a ${object.kind} of this name, which is not one of the job`;
    throw new ApiError(409, FOREIGN, `${what}: it has no label ${JOB_LABEL}=${job.metadata.name}`);
  }

  private async apply(object: ObjectManifest): Promise<void> {
    const kind = resourceOf(object);
    if (kind === undefined) return;
    const { api, onWritten } = this.options;
    try {
      onWritten(kind, await api.apply(kind, object));
    } catch (error) {
      if (kind !== 'StatefulSet' || !ROLLING.test(describe(error))) throw error;
      // An operator of before applied no strategy. A default of the server has no owner until it is applied,
      // and only an owner's next apply takes it away.
      const rolling = { type: 'RollingUpdate', rollingUpdate: { partition: 0 } };
      await api.apply(kind, { ...object, spec: { ...(object.spec as object), updateStrategy: rolling } });
      onWritten(kind, await api.apply(kind, object));
    }
  }

  private async gate({ pod, open }: Extract<Action, { kind: 'gate' }>): Promise<void> {
    const { api, now, onWritten } = this.options;
    const status = open ? 'True' : 'False';
    const lastTransitionTime = timeOf(now());
    const conditions = [{ type: REDUNDANT_GATE, status, lastTransitionTime }];
    try {
      onWritten('Pod', await api.patchStatus<Pod>('Pod', pod, { conditions }));
    } catch (error) {
      // The Pod is gone, or another one has its name.
      if (!hasStatus(error, 404) && !hasStatus(error, 409)) throw error;
    }
  }

  /** Lets go of a Workload of Kueue. */
  async release(workload: KubeObject): Promise<void> {
    try {
      await this.replace('Workload', released(workload));
    } catch (error) {
      if (!hasStatus(error, 404)) throw error;
    }
  }

  private async replace<T extends KubeObject>(kind: ResourceKind, object: T, part?: 'status'): Promise<T> {
    const answer = await this.options.api.replace<T>(kind, object, part);
    this.options.onWritten(kind, answer);
    return answer;
  }

  /** Asks the server, because a mirror may not have a machine yet that has just come. */
  private async isGone(name: string): Promise<boolean> {
    try {
      return isGone(await this.options.api.get<KubeNode>('Node', undefined, name));
    } catch (error) {
      if (hasStatus(error, 404)) return true;
      throw error;
    }
  }

  /**
   * Deletes an object. Another one of this name is left alone; with `asObserved` also one that has changed
   * since.
   */
  async remove(kind: ResourceKind, metadata: KubeObject['metadata'], options: Removal = {}): Promise<void> {
    const { namespace = '', name, uid, resourceVersion } = metadata;
    const { graceSeconds, asObserved } = options;
    const version = asObserved ? resourceVersion : undefined;
    try {
      await this.options.api.delete(kind, namespace, name, { uid, graceSeconds, resourceVersion: version });
      this.options.log.info('operator.deleted', { kind, namespace, object: name });
    } catch (error) {
      if (!hasStatus(error, 404) && !hasStatus(error, 409)) throw error;
    }
  }
}
