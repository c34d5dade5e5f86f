/**
 * Looks after the jobs of a namespace: mirrors of the API server say that something is different, a pass over
 * the job decides (reconcile/), and this file does what was decided.
 */
import { randomBytes } from 'node:crypto';
import { describe } from '../errors.js';
import type { Logger } from '../runtime/log.js';
import { type Api, ApiError, hasStatus } from './api/api.js';
import { Mirror } from './api/mirror.js';
import { isKind, type Kind } from './api/resources.js';
import { Link, type LinkOptions } from './link.js';
import type { KubeNode, KubeObject, Manifest, Pod } from './objects.js';
import { WorkQueue } from './queue.js';
import { JOB_LABEL, ROLE_LABEL, SCHEDULER_PORT, secretName } from './reconcile/names.js';
import type { Action, Observed } from './reconcile/observed.js';
import { reconcile } from './reconcile/reconcile.js';
import { hasEnded } from './reconcile/status.js';
import type { TrainingJob } from './types.js';

/** A client of a job, or what stands for one in a test. */
export type JobLink = Pick<Link, 'report' | 'asked' | 'scale' | 'close'> & { options: LinkOptions };

export interface OperatorOptions {
  api: Api;
  /** Undefined: all. */
  namespace: string | undefined;
  log: Logger;
  /** Default: a client of the job. */
  link?: (options: LinkOptions) => JobLink;
  /** Milliseconds since 1970. */
  now?: () => number;
  /** Every job gets a pass so often, whatever was missed. */
  resyncMs?: number;
}

const AT_ONCE = 4;
const RESYNC_MS = 60_000;
const CREATE_ATTEMPTS = 3;
/** Kinds that a job owns, besides Pods and its Secret. */
const OWNED = ['Service', 'StatefulSet', 'PodDisruptionBudget'] as const;

const ownedBy = ({ metadata }: KubeObject, job: TrainingJob): boolean =>
  metadata.ownerReferences?.some(({ uid }) => uid === job.metadata.uid) ?? false;

export class Operator {
  private readonly jobs: Mirror<TrainingJob>;
  private readonly pods: Mirror<Pod>;
  private readonly nodes: Mirror<KubeNode>;
  private readonly owned: Mirror<KubeObject>[];
  private readonly queue: WorkQueue;
  private readonly links = new Map<string, JobLink>();
  /** Uids of jobs whose Secret was seen. */
  private readonly secrets = new Set<string>();
  private readonly readiness = new Map<string, string>();
  private resync: NodeJS.Timeout | undefined;
  private readonly now: () => number;

  constructor(private readonly options: OperatorOptions) {
    const { api, namespace, log } = options;
    this.now = options.now ?? Date.now;
    const onError = (message: string) => log.warn('operator.watch', { message });
    const mirror = <T extends KubeObject>(kind: Kind, onChange: (object: T) => void, mine = true) => {
      const labels = kind !== 'TrainingJob' && mine ? JOB_LABEL : undefined;
      const selection = { namespace: mine ? namespace : undefined, labels };
      return new Mirror<T>({ api, kind, selection, onChange, onError });
    };
    const ofJob = ({ metadata }: KubeObject) => {
      const name = metadata.labels?.[JOB_LABEL];
      if (name !== undefined) this.queue.add(`${metadata.namespace}/${name}`);
    };
    this.jobs = mirror('TrainingJob', ({ metadata }) =>
      this.queue.add(`${metadata.namespace}/${metadata.name}`),
    );
    this.pods = mirror<Pod>('Pod', ofJob);
    this.nodes = mirror('Node', (node) => this.onNode(node), false);
    this.owned = OWNED.map((kind) => mirror<KubeObject>(kind, ofJob));
    this.queue = new WorkQueue({
      ...{ pass: (key) => this.pass(key), atOnce: AT_ONCE, now: this.now },
      onFailed: (job, error) => log.warn('operator.pass', { job, message: describe(error) }),
    });
  }

  /** Why it does not serve; undefined: it does. */
  notReady(): string | undefined {
    return this.mirrors().every((one) => one.isReady) ? undefined : 'the API server was not listed yet';
  }

  /** Passes that run, or that wait for their time. */
  get passes(): number {
    return this.queue.length;
  }

  /** Jobs by phase. */
  phases(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { status } of this.jobs.all()) {
      const phase = status?.phase ?? 'Pending';
      counts.set(phase, (counts.get(phase) ?? 0) + 1);
    }
    return counts;
  }

  /** Resolves when everything was listed. */
  async start(): Promise<void> {
    for (const mirror of this.mirrors()) mirror.start();
    await Promise.all(this.mirrors().map((one) => one.ready));
    this.addAll();
    this.resync = setInterval(() => this.addAll(), this.options.resyncMs ?? RESYNC_MS);
    this.resync.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.resync);
    await this.queue.stop();
    await Promise.all(this.mirrors().map((one) => one.stop()));
    await Promise.all([...this.links.values()].map((link) => link.close()));
    this.links.clear();
  }

  private mirrors(): Mirror<never>[] {
    return [this.jobs, this.pods, this.nodes, ...this.owned] as unknown as Mirror<never>[];
  }

  private addAll(): void {
    for (const { metadata } of this.jobs.all()) this.queue.add(`${metadata.namespace}/${metadata.name}`);
  }

  /** Nodes say every few seconds that they live: only one that is ready or not any more is news. */
  private onNode(node: KubeNode): void {
    const { name } = node.metadata;
    const ready = node.status?.conditions?.find(({ type }) => type === 'Ready')?.status ?? 'Unknown';
    if (this.readiness.get(name) === ready) return;
    this.readiness.set(name, ready);
    this.addAll();
  }

  private async pass(key: string): Promise<void> {
    if (!this.mirrors().every((one) => one.isReady)) return;
    const [namespace = '', name = ''] = key.split('/');
    const job = this.jobs.get(namespace, name);
    if (!job) return this.orphans(namespace, name);
    const pods = this.pods
      .all()
      .filter((pod) => pod.metadata.namespace === namespace && ownedOrScheduled(pod, job));
    const link = await this.linkOf(key, job, pods);
    const observed: Observed = {
      ...{ now: this.now(), job, pods, nodes: this.nodes.all() },
      owned: this.owned.flatMap((one) =>
        one.all().filter((object) => object.metadata.namespace === namespace && ownedBy(object, job)),
      ),
      secret: await this.hasSecret(job),
      ...{ report: link?.report, asked: link?.asked },
    };
    for (const action of reconcile(observed)) await this.carryOut(key, job, action);
  }

  /** Its own Secret was seen once; then it is there until somebody deletes it. */
  private async hasSecret(job: TrainingJob): Promise<boolean> {
    const { uid = '', namespace = '' } = job.metadata;
    if (job.spec.auth || hasEnded(job.status) || this.secrets.has(uid)) return true;
    try {
      await this.options.api.get('Secret', namespace, secretName(job));
      this.secrets.add(uid);
      return true;
    } catch (error) {
      if (hasStatus(error, 404)) return false;
      throw error;
    }
  }

  /** A client of the job while its scheduler runs, at the address that it has now. */
  private async linkOf(key: string, job: TrainingJob, pods: readonly Pod[]): Promise<JobLink | undefined> {
    const scheduler = pods.find(
      ({ metadata, status }) =>
        metadata.labels?.[ROLE_LABEL] === 'scheduler' &&
        metadata.deletionTimestamp === undefined &&
        status?.phase === 'Running' &&
        status.podIP !== undefined,
    );
    const address = scheduler && !hasEnded(job.status) ? addressOf(scheduler.status!.podIP!) : undefined;
    const before = this.links.get(key);
    if (before && before.options.address === address) return before;
    this.links.delete(key);
    await before?.close();
    if (address === undefined) return undefined;
    const token = await this.tokenOf(job);
    if (token === undefined) return undefined;
    const { link = (options) => new Link(options) } = this.options;
    const made = link({ address, token, run: runOf(job), onChange: () => this.queue.add(key) });
    this.links.set(key, made);
    return made;
  }

  private async tokenOf(job: TrainingJob): Promise<string | undefined> {
    try {
      const { namespace } = job.metadata;
      const secret = await this.options.api.get<KubeObject & { data?: Record<string, string> }>(
        ...(['Secret', namespace, secretName(job)] as const),
      );
      return Buffer.from(secret.data?.token ?? '', 'base64').toString('utf8');
    } catch (error) {
      if (hasStatus(error, 404)) return undefined;
      throw error;
    }
  }

  /** Pods whose job was deleted end at once: there is nobody whom they could hand anything over to. */
  private async orphans(namespace: string, name: string): Promise<void> {
    const key = `${namespace}/${name}`;
    const link = this.links.get(key);
    this.links.delete(key);
    await link?.close();
    const pods = this.pods
      .all()
      .filter(({ metadata }) => metadata.namespace === namespace && metadata.labels?.[JOB_LABEL] === name)
      .filter(({ metadata }) => metadata.labels?.[ROLE_LABEL] !== 'scheduler');
    if (pods.length === 0) return;
    // The mirror may be behind.
    const there = await this.options.api.get('TrainingJob', namespace, name).then(
      () => true,
      (error: unknown) => !hasStatus(error, 404),
    );
    if (there) return;
    for (const { metadata } of pods) {
      const grace = (metadata as { deletionGracePeriodSeconds?: number }).deletionGracePeriodSeconds;
      if (metadata.deletionTimestamp === undefined || (grace ?? 0) > 1) await this.remove('Pod', metadata, 1);
    }
  }

  private async carryOut(key: string, job: TrainingJob, action: Action): Promise<void> {
    const { api, log } = this.options;
    switch (action.kind) {
      case 'status':
        // On the version that was observed: where that is out of date, the pass ends here.
        this.jobs.note(
          await api.replace('TrainingJob', { ...job, status: action.status } as KubeObject, 'status'),
        );
        return;
      case 'secret': {
        const values = action.keys.map((name) => [name, randomBytes(32).toString('base64url')]);
        await this.create('Secret', { ...action.object, stringData: Object.fromEntries(values) });
        return;
      }
      case 'create':
        await this.create('Pod', action.object);
        return;
      case 'apply':
        await this.apply(action.object);
        return;
      case 'delete': {
        const { kind, metadata } = action.object;
        if (isKind(kind)) await this.remove(kind, metadata, action.graceSeconds);
        return;
      }
      case 'scale':
        log.info('operator.scale', { job: key, ps: action.ps });
        this.links.get(key)?.scale(action.ps, action.timeoutMs);
        return;
      case 'event':
        await this.tell(job, action);
        return;
      case 'wake':
        this.queue.add(key, action.at);
        return;
    }
  }

  /**
   * Whether an attempt whose answer is missing has made it, the next one shows. Without that another Pod
   * would be made beside it, under the next index.
   */
  private async create(kind: 'Pod' | 'Secret', object: Manifest): Promise<void> {
    const { name, namespace } = object.metadata;
    for (let attempt = 1; ; attempt++) {
      try {
        const made = await this.options.api.create<Pod>(kind, object);
        if (kind === 'Pod') this.pods.note(made);
        this.options.log.info('operator.created', { kind, namespace, object: name });
        return;
      } catch (error) {
        // An earlier attempt has made it, or a job of this name before.
        if (hasStatus(error, 409)) return this.noteMade(kind, namespace, name);
        const passing = error instanceof ApiError && (error.status === 0 || error.status >= 500);
        if (!passing || attempt === CREATE_ATTEMPTS) throw error;
      }
    }
  }

  private async noteMade(kind: Kind, namespace: string | undefined, name: string): Promise<void> {
    if (kind === 'Pod') this.pods.note(await this.options.api.get<Pod>('Pod', namespace, name));
  }

  private async apply(object: Manifest): Promise<void> {
    const { kind } = object;
    if (!isKind(kind)) return;
    const applied = await this.options.api.apply(kind, object);
    this.owned[OWNED.indexOf(kind as (typeof OWNED)[number])]?.note(applied);
  }

  private async remove(kind: Kind, metadata: KubeObject['metadata'], graceSeconds?: number): Promise<void> {
    const { namespace = '', name, uid } = metadata;
    try {
      await this.options.api.delete(kind, namespace, name, { uid, graceSeconds });
      this.options.log.info('operator.deleted', { kind, namespace, object: name });
    } catch (error) {
      if (!hasStatus(error, 404) && !hasStatus(error, 409)) throw error;
    }
  }

  private async tell(job: TrainingJob, { type, reason, message }: Action & { kind: 'event' }): Promise<void> {
    const { name, namespace = '', uid = '' } = job.metadata;
    const { apiVersion, kind } = job;
    const time = new Date(this.now()).toISOString().replace(/\.\d+Z$/, 'Z');
    await this.options.api
      .create('Event', {
        ...{ apiVersion: 'v1', kind: 'Event' },
        metadata: { name: `${name}.${randomBytes(6).toString('hex')}`, namespace },
        involvedObject: { apiVersion, kind, name, namespace, uid },
        ...{ type, reason, message, firstTimestamp: time, lastTimestamp: time, count: 1 },
        source: { component: 'kintsugi-operator' },
      })
      // A story without one of its sentences is better than none.
      .catch((error: unknown) => this.options.log.warn('operator.event', { message: describe(error) }));
  }
}

/** The Pod of the scheduler belongs to its StatefulSet. */
function ownedOrScheduled(pod: Pod, job: TrainingJob): boolean {
  const { labels } = pod.metadata;
  if (labels?.[JOB_LABEL] !== job.metadata.name) return false;
  return ownedBy(pod, job) || labels[ROLE_LABEL] === 'scheduler';
}

const addressOf = (ip: string): string => `${ip.includes(':') ? `[${ip}]` : ip}:${SCHEDULER_PORT}`;

/** The data set that the workers train. */
function runOf({ spec }: TrainingJob): string {
  const args = spec.replicaSpecs.worker.args ?? [];
  const at = args.indexOf('--run');
  const joined = args.find((arg) => arg.startsWith('--run='));
  return joined?.slice('--run='.length) ?? (at < 0 ? undefined : args[at + 1]) ?? 'train';
}
