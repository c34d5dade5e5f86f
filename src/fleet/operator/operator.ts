/**
 * Looks after the jobs of a namespace: mirrors of the API server tell of changes, a pass over the job decides
 * (reconcile/), and hands carry the decision out.
 */
import { describe } from '../../common/errors.js';
import type { Logger } from '../../net/log.js';
import { type Api, hasStatus } from './api/api.js';
import { Mirror } from './api/mirror.js';
import type { ResourceKind } from './api/resources.js';
import { type AutoscaledJob, JobAutoscale } from './autoscale.js';
import { Hands, isMaking, isRefusal } from './hands.js';
import { JobLink, type JobLinkOptions } from './link.js';
import type { KubeNode, KubeObject, Pod } from './objects.js';
import { isOfEarlier, isOfName, isPodOf, ownedBy } from './ownership.js';
import { WorkQueue } from './queue.js';
import { isOutOfService } from './reconcile/apart.js';
import { stateClaim } from './reconcile/fixtures.js';
import { JOB_LABEL, ROLE_LABEL, runOf, SCHEDULER_PORT, secretName } from './reconcile/names.js';
import type { ObservedJob } from './reconcile/observed.js';
import { isInUse } from './reconcile/queueing.js';
import { isReclaimed } from './reconcile/reclaim.js';
import { hasPods, reconcile } from './reconcile/reconcile.js';
import { isRemoval } from './reconcile/remains.js';
import { withoutJob } from './reconcile/scaling/lone.js';
import { hasEnded } from './reconcile/status.js';
import { accessOf } from './secrets.js';
import { troublesOf } from './troubles.js';
import type { ScalerObject, TrainingJob } from './types.js';

/** A client of a job, or what stands for one in a test. */
export type JobHandle = Pick<
  JobLink,
  | 'report'
  | 'heardAt'
  | 'looked'
  | 'asked'
  | 'saved'
  | 'planned'
  | 'told'
  | 'ask'
  | 'gather'
  | 'save'
  | 'tellPlan'
  | 'close'
  | keyof AutoscaledJob
> & {
  options: JobLinkOptions;
};

export interface OperatorOptions {
  api: Api;
  /** Namespace of the jobs; undefined: all. */
  namespace: string | undefined;
  /** Where the operator itself runs. */
  ownNamespace: string;
  log: Logger;
  /** Makes the link to a job. Default: a client of the job. */
  link?: (options: JobLinkOptions) => JobHandle;
  /** Milliseconds since 1970. */
  now?: () => number;
  /** Milliseconds after which every job gets a pass, whatever was missed. */
  resyncMs?: number;
}

const AT_ONCE = 4;
const RESYNC_MS = 60_000;
/** Kinds that users make, to scale a job. */
const SCALERS = ['ScaleOut', 'ScaleIn'] as const;
const UNLABELLED: ReadonlySet<ResourceKind> = new Set(['TrainingJob', ...SCALERS]);
/** Kinds that a job owns, besides Pods and its Secret. */
const OWNED = [
  ...(['Service', 'StatefulSet', 'PodDisruptionBudget', 'NetworkPolicy'] as const),
  ...(['PodMonitor', 'PodGroup', 'CoschedulingPodGroup', 'NativePodGroup', 'Workload'] as const),
];
/** Kinds of Kueue that say what an admission means for Pods, and how urgent a job is. */
const OF_KUEUE = ['ResourceFlavor', 'WorkloadPriorityClass'] as const;

const keyOf = ({ metadata }: KubeObject): string => `${metadata.namespace}/${metadata.name}`;

export class Operator {
  private readonly jobs: Mirror<TrainingJob>;
  private readonly pods: Mirror<Pod>;
  private readonly nodes: Mirror<KubeNode>;
  private readonly scalers: Mirror<ScalerObject>[];
  private readonly owned = new Map<ResourceKind, Mirror<KubeObject>>();
  private readonly ofKueue: Mirror<KubeObject>[];
  private readonly queue: WorkQueue;
  private readonly hands: Hands;
  private readonly links = new Map<string, JobHandle>();
  private readonly autoscales = new Map<string, { link: JobHandle; autoscale: JobAutoscale }>();
  /** Uids of jobs whose Secret was seen. */
  private readonly secrets = new Set<string>();
  private readonly readiness = new Map<string, string>();
  private resync: NodeJS.Timeout | undefined;
  private stopped = false;
  private readonly now: () => number;

  constructor(private readonly options: OperatorOptions) {
    const { api, namespace, log } = options;
    this.now = options.now ?? Date.now;
    const onError = (message: string) => log.warn('operator.watch', { message });
    const mirror = <T extends KubeObject>(kind: ResourceKind, onChange: (object: T) => void, mine = true) => {
      const labels = mine && !UNLABELLED.has(kind) ? JOB_LABEL : undefined;
      const selection = { namespace: mine ? namespace : undefined, labels };
      return new Mirror<T>({ api, kind, selection, onChange, onError });
    };
    const ofJob = ({ metadata }: KubeObject) => {
      const name = metadata.labels?.[JOB_LABEL];
      if (name !== undefined) this.queue.add(`${metadata.namespace}/${name}`);
    };
    this.jobs = mirror('TrainingJob', (job) => this.queue.add(keyOf(job)));
    this.pods = mirror<Pod>('Pod', ofJob);
    this.scalers = SCALERS.map((kind) =>
      mirror<ScalerObject>(kind, ({ metadata, spec }) =>
        this.queue.add(`${metadata.namespace}/${spec.selector.name}`),
      ),
    );
    this.nodes = mirror('Node', (node) => this.onNode(node), false);
    this.ofKueue = OF_KUEUE.map((kind) => mirror<KubeObject>(kind, () => this.addAll(), false));
    for (const kind of OWNED) this.owned.set(kind, mirror<KubeObject>(kind, ofJob));
    this.queue = new WorkQueue({
      ...{ pass: (key) => this.pass(key), atOnce: AT_ONCE, now: this.now },
      onFailed: (job, error) => log.warn('operator.pass', { job, message: describe(error) }),
    });
    this.hands = new Hands({
      ...{ api, log, now: this.now },
      onWritten: (kind, object) => this.mirrorOf(kind)?.note(object),
      onAsk: (job, { key, change, timeoutMs }) => {
        log.info('operator.ask', { job: keyOf(job), ...change });
        this.links.get(keyOf(job))?.ask({ key, change, timeoutMs });
      },
      onCheckpoint: (job, generation) => {
        log.info('operator.checkpoint', { job: keyOf(job) });
        this.links.get(keyOf(job))?.save(generation);
      },
      onPlan: (job, { generation, plan }) => {
        log.info('operator.plan', { job: keyOf(job), place: plan?.url ?? '' });
        this.links.get(keyOf(job))?.tellPlan(generation, plan);
      },
      onGather: (job, { digest }) => {
        log.info('operator.gather', { job: keyOf(job), digest });
        this.links.get(keyOf(job))?.gather(digest);
      },
      onWake: (job, at) => this.queue.add(keyOf(job), at),
    });
  }

  /** Why the operator does not serve; undefined: it does. */
  notReady(): string | undefined {
    return this.mirrors().every((one) => one.isReady) ? undefined : 'the API server was not listed yet';
  }

  /** Passes that run, or that wait for their time. */
  get passes(): number {
    return this.queue.length;
  }

  /** Number of passes that ended, by outcome. */
  get passesMade(): ReadonlyMap<string, number> {
    return this.queue.passed;
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
    if (this.stopped) return;
    this.addAll();
    this.resync = setInterval(() => this.addAll(), this.options.resyncMs ?? RESYNC_MS);
    this.resync.unref();
  }

  async stop(): Promise<void> {
    this.stopped = true;
    clearInterval(this.resync);
    await this.queue.stop();
    await Promise.all([...this.autoscales.values()].map(({ autoscale }) => autoscale.stop()));
    this.autoscales.clear();
    await Promise.all(this.mirrors().map((one) => one.stop()));
    await Promise.all([...this.links.values()].map((link) => link.close()));
    this.links.clear();
  }

  private mirrors(): Mirror<never>[] {
    return [
      this.jobs,
      this.pods,
      this.nodes,
      ...this.scalers,
      ...this.owned.values(),
      ...this.ofKueue,
    ] as unknown as Mirror<never>[];
  }

  private mirrorOf(kind: ResourceKind): Mirror<KubeObject> | undefined {
    return (this.mirrors() as unknown as Mirror<KubeObject>[]).find((one) => one.kind === kind);
  }

  private addAll(): void {
    for (const job of this.jobs.all()) this.queue.add(keyOf(job));
    for (const { metadata, spec } of this.scalers.flatMap((one) => one.all()))
      this.queue.add(`${metadata.namespace}/${spec.selector.name}`);
  }

  /**
   * Nodes report every few seconds that they live. Jobs get a pass only when a node becomes ready or unready,
   * is to go, is out of service, or is gone.
   */
  private onNode(node: KubeNode): void {
    const { name } = node.metadata;
    const told = node.status?.conditions?.find(({ type }) => type === 'Ready')?.status ?? 'Unknown';
    const ready = `${told} ${isReclaimed(node)} ${isOutOfService(node)}`;
    const there = this.nodes.get(undefined, name) !== undefined;
    if (there && this.readiness.get(name) === ready) return;
    if (there) this.readiness.set(name, ready);
    else this.readiness.delete(name);
    this.addAll();
  }

  private async pass(key: string): Promise<void> {
    if (!this.mirrors().every((one) => one.isReady)) return;
    const [namespace = '', name = ''] = key.split('/');
    const job = this.jobs.get(namespace, name);
    await this.releaseStrays(namespace, name, job);
    if (!job) return this.orphans(namespace, name);
    const pods = this.pods.ofJob(namespace, name).filter((pod) => isPodOf(pod, job));
    const link = await this.linkOf(key, job, pods);
    await this.autoscaleOf(key, job, link);
    const secret = await this.ownerOfSecret(job);
    const owned = [...this.owned.values()].flatMap((one) =>
      one.ofJob(namespace, name).filter((object) => ownedBy(object, job)),
    );
    const observed: ObservedJob = {
      ...{ now: this.now(), job, pods, nodes: this.nodes.all(), owned },
      extras: new Set([...this.owned.values()].filter((one) => one.exists).map(({ kind }) => kind)),
      operatorNamespace: this.options.ownNamespace,
      secret: secret === 'own',
      earlier: [
        ...this.leftBefore(job),
        ...(await this.claimBefore(job, owned)),
        ...(secret === 'earlier' ? [`Secret ${secretName(job)}`] : []),
      ],
      ...{ report: link?.report, asked: link?.asked, saved: link?.saved, told: link?.told },
      ...{ planned: link?.planned, heardAt: link?.heardAt, asking: link !== undefined && !link.looked },
      ...{ refusals: this.hands.refusals.of(job), attempted: this.hands.refusals.attempted(job) },
      askedFor: this.hands.refusals.podsOf(job),
      troubles: await troublesOf(this.options.api, pods, this.now()),
      scalers: this.scalersOf(namespace, name),
      ...{ flavors: this.ofKueue[0]!.all(), priorities: this.ofKueue[1]!.all() },
    };
    let current = job;
    const refusals: unknown[] = [];
    for (const action of reconcile(observed)) {
      try {
        current = await this.hands.do(current, action);
      } catch (error) {
        // A refused object is no reason to leave the others.
        if (!(isMaking(action) || action.kind === 'resize') || !isRefusal(error)) throw error;
        refusals.push(error);
        // The status that comes after a report says that it is there.
        if (action.kind === 'report') break;
      }
    }
    if (refusals.length > 0) throw refusals[0];
  }

  /** Keeps an autoscaler beside a job that wants one, while the job runs and answers. */
  private async autoscaleOf(key: string, job: TrainingJob, link: JobHandle | undefined): Promise<void> {
    const runs = job.status?.phase === 'Running' || job.status?.phase === 'Scaling';
    const wanted = link && job.spec.autoscale && runs && !job.metadata.deletionTimestamp ? link : undefined;
    const before = this.autoscales.get(key);
    if (before && before.link === wanted && before.autoscale.update(job)) return;
    this.autoscales.delete(key);
    await before?.autoscale.stop();
    if (!wanted) return;
    const { api, log } = this.options;
    const [namespace = '', name = ''] = key.split('/');
    const autoscale = new JobAutoscale(job, {
      ...{ api, link: wanted, now: this.now, scalers: () => this.scalersOf(namespace, name) },
      log: (fields) => log.info('operator.autoscale', { job: key, ...fields }),
    });
    this.autoscales.set(key, { link: wanted, autoscale });
  }

  private scalersOf(namespace: string, job: string): ScalerObject[] {
    const mine = ({ metadata, spec }: ScalerObject) =>
      metadata.namespace === namespace && spec.selector.name === job;
    return this.scalers.flatMap((one) => one.all().filter(mine));
  }

  /**
   * Objects of an earlier job of the same name, each as kind and name. Its Workload has another name, and
   * goes when its Pods have gone.
   */
  private leftBefore(job: TrainingJob): string[] {
    const { namespace, name } = job.metadata;
    return [...this.owned.values()]
      .filter(({ kind }) => kind !== 'Workload')
      .flatMap((one) => one.ofJob(namespace, name).filter((object) => isOfEarlier(object, job)))
      .map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  }

  /**
   * The claim for the state of an earlier job of the same name, as kind and name, if it goes with the
   * StatefulSet of that one. A scheduler would begin on it, and lose it.
   */
  private async claimBefore(job: TrainingJob, owned: readonly KubeObject[]): Promise<string[]> {
    const { namespace = '' } = job.metadata;
    const claim = stateClaim(job);
    if (claim === undefined || hasPods(job) || hasEnded(job.status)) return [];
    try {
      const { metadata } = await this.options.api.get('PersistentVolumeClaim', namespace, claim);
      const isMine = (uid: string) => owned.some((object) => object.metadata.uid === uid);
      const goes = metadata.ownerReferences?.some(({ kind, uid }) => kind === 'StatefulSet' && !isMine(uid));
      return goes || metadata.deletionTimestamp !== undefined ? [`PersistentVolumeClaim ${claim}`] : [];
    } catch (error) {
      // The role of an older installation has no right to look.
      if (hasStatus(error, 404) || hasStatus(error, 403)) return [];
      throw error;
    }
  }

  /**
   * Whether the Secret of the job is there, or one of an earlier job of its name. Once its own was seen, it
   * is not looked for again.
   */
  private async ownerOfSecret(job: TrainingJob): Promise<'own' | 'earlier' | undefined> {
    const { uid = '', namespace = '' } = job.metadata;
    if (job.spec.auth || hasEnded(job.status) || this.secrets.has(uid)) return 'own';
    try {
      const secret = await this.options.api.get('Secret', namespace, secretName(job));
      if (isOfEarlier(secret, job)) return 'earlier';
      this.secrets.add(uid);
      return 'own';
    } catch (error) {
      if (hasStatus(error, 404)) return undefined;
      throw error;
    }
  }

  /** The link to the job while a scheduler runs, at the addresses that its schedulers have now. */
  private async linkOf(key: string, job: TrainingJob, pods: readonly Pod[]): Promise<JobHandle | undefined> {
    const schedulers = pods.filter(
      ({ metadata, status }) =>
        metadata.labels?.[ROLE_LABEL] === 'scheduler' &&
        metadata.deletionTimestamp === undefined &&
        status?.phase === 'Running' &&
        status.podIP !== undefined,
    );
    const addresses = schedulers.map(({ status }) => addressOf(status!.podIP!)).sort();
    const address = addresses.length > 0 && !hasEnded(job.status) ? addresses.join(',') : undefined;
    const before = this.links.get(key);
    if (before && before.options.address === address) return before;
    this.links.delete(key);
    await before?.close();
    if (address === undefined) return undefined;
    const access = await accessOf(this.options.api, job);
    if (access === undefined) return undefined;
    const { link = (options) => new JobLink(options) } = this.options;
    const made = link({ address, ...access, run: runOf(job), onChange: () => this.queue.add(key) });
    this.links.set(key, made);
    return made;
  }

  /** Workloads of Kueue of deleted jobs give their quota back when the Pods of these have gone. */
  private async releaseStrays(namespace: string, name: string, job: TrainingJob | undefined): Promise<void> {
    const isStray = (object: KubeObject): boolean => !job || !ownedBy(object, job);
    const strays = this.owned.get('Workload')!.ofJob(namespace, name).filter(isStray);
    const leaving = strays.filter((one) => one.metadata.deletionTimestamp !== undefined && isInUse(one));
    if (leaving.length === 0) return;
    const pods = this.pods.ofJob(namespace, name).filter((pod) => !job || !isPodOf(pod, job));
    if (pods.length > 0) return;
    for (const workload of leaving) await this.hands.release(workload);
  }

  /** Ends the Pods of a deleted job at once: there is nobody to whom they could hand anything over. */
  private async orphans(namespace: string, name: string): Promise<void> {
    const key = `${namespace}/${name}`;
    const { autoscale } = this.autoscales.get(key) ?? {};
    this.autoscales.delete(key);
    await autoscale?.stop();
    const link = this.links.get(key);
    this.links.delete(key);
    await link?.close();
    this.hands.forget(namespace, name);
    const pods = this.pods
      .ofJob(namespace, name)
      .filter((pod) => isOfName(pod, name) || isRemoval(pod, name));
    const scalers = this.scalersOf(namespace, name);
    if (pods.length === 0 && scalers.length === 0) return;
    // The mirror may be behind, so the server is asked.
    const there = await this.options.api.get('TrainingJob', namespace, name).then(
      () => true,
      (error: unknown) => !hasStatus(error, 404),
    );
    if (there) return;
    for (const action of withoutJob(scalers, this.now())) await this.hands.lone(action);
    for (const { metadata } of pods) {
      if (metadata.deletionTimestamp === undefined || (metadata.deletionGracePeriodSeconds ?? 0) > 1)
        await this.hands.remove('Pod', metadata, { graceSeconds: 1 });
    }
  }
}

const addressOf = (ip: string): string => `${ip.includes(':') ? `[${ip}]` : ip}:${SCHEDULER_PORT}`;
