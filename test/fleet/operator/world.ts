/** The world of an operator: kubelets, the controller of StatefulSets, machines, and the job itself. */
import type { Api } from '../../../src/fleet/operator/api/api.js';
import type { KubeObject, ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import { type JobHandle, Operator } from '../../../src/fleet/operator/operator.js';
import { INDEX_LABEL, JOB_LABEL, ROLE_LABEL } from '../../../src/fleet/operator/reconcile/names.js';
import type {
  Action,
  ChangeReport,
  JobReport,
  ObservedCheckpoint,
  ObservedEnd,
  ObservedRequest,
} from '../../../src/fleet/operator/reconcile/observed.js';
import type { ScalerObject, TrainingJob } from '../../../src/fleet/operator/types.js';
import { MemoryServer, randomOf } from './server.js';
import { changeOf, jobOf, nodeOf } from './support.js';

const QUIET = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

export class World {
  readonly random: () => number;
  readonly server: MemoryServer;
  readonly problems: string[] = [];
  /** Names of PS whose process runs. */
  readonly serving = new Set<string>();
  private readonly dead = new Set<string>();
  private readonly waiting = new Set<() => void>();
  private readonly links = new Set<() => void>();
  private readonly asked = new Map<string, ObservedRequest>();
  private changes: ChangeReport[] = [];
  /** True: PS that the job is asked for are not made, and the change is taken back. */
  stuck = false;
  private saved: ObservedCheckpoint | undefined;
  private told: ObservedEnd | undefined;
  checkpoints = 0;
  private silent = false;
  operator: Operator;

  constructor(seed: number, nodes = 4) {
    this.random = randomOf(seed);
    this.server = new MemoryServer(this.random);
    for (let index = 1; index <= nodes; index++) this.server.put('Node', nodeOf(`n${index}`));
    const { server } = this;
    const remove = server.delete.bind(server);
    server.delete = async (kind, namespace, name, options) => {
      if (namespace !== 'ml') this.problems.push(`${kind} ${namespace}/${name} is not its own`);
      // An observation may be out of date: then the server refuses.
      await remove(kind, namespace, name, options);
      const doing =
        kind === 'Pod' &&
        this.serving.has(name) &&
        this.machineOf(name) &&
        !this.over() &&
        !this.job().status?.suspended;
      if (doing) this.problems.push(`${name} is deleted while it serves`);
    };
    server.onChange = (kind, object, gone) => {
      setImmediate(() => this.react(kind, object as Pod, gone));
      for (const check of [...this.waiting]) check();
    };
    this.operator = this.begin();
  }

  /** Begins another operator, which knows nothing of the one before. */
  begin(api: Api = this.server): Operator {
    this.links.clear();
    Object.assign(this, { told: undefined, saved: undefined });
    this.operator = new Operator({
      ...{ api, namespace: 'ml', ownNamespace: 'ml', log: QUIET as never, resyncMs: 2000 },
      link: (options) => this.link(options),
    });
    return this.operator;
  }

  job(): TrainingJob {
    return this.server.of<TrainingJob>('TrainingJob')[0]!;
  }

  pods(role: string): Pod[] {
    return this.server.of<Pod>('Pod').filter(({ metadata }) => metadata.labels?.[ROLE_LABEL] === role);
  }

  active(role: string): Pod[] {
    return this.pods(role).filter(
      ({ metadata, status }) =>
        metadata.deletionTimestamp === undefined && (status?.phase === 'Running' || !status?.phase),
    );
  }

  /** Resolves when `so` is true, which may be now. */
  until(so: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        if (!so()) return;
        this.waiting.delete(check);
        resolve();
      };
      this.waiting.add(check);
      check();
    });
  }

  start(job = jobOf()): void {
    this.server.put('TrainingJob', job);
  }

  edit(change: (job: TrainingJob) => void): void {
    const job = structuredClone(this.job());
    change(job);
    this.server.put('TrainingJob', job);
  }

  end(pod: Pod, exitCode: number): void {
    this.serving.delete(pod.metadata.name);
    const terminated = { exitCode, finishedAt: new Date().toISOString() };
    const containerStatuses = [{ name: 'kintsugi', ready: false, restartCount: 0, state: { terminated } }];
    const phase = exitCode === 0 ? ('Succeeded' as const) : ('Failed' as const);
    this.server.put('Pod', { ...pod, status: { phase, containerStatuses, conditions: [] } } as Pod);
    this.changed();
  }

  scalers(): ScalerObject[] {
    return [...this.server.of<ScalerObject>('ScaleOut'), ...this.server.of<ScalerObject>('ScaleIn')];
  }

  /** Adds a ScaleOut or ScaleIn, as users make it. */
  ask(scaler: ScalerObject): void {
    this.server.put(scaler.kind, scaler);
  }

  evict(pod: Pod): void {
    if (pod.metadata.deletionTimestamp !== undefined) return;
    this.server.put('Pod', { ...pod, metadata: { ...pod.metadata, deletionTimestamp: 'now' } });
  }

  /** Loses a machine: its Pods are only told to end after a while, and never do. */
  lose(name: string): void {
    this.dead.add(name);
    this.server.put('Node', nodeOf(name, false));
    for (const pod of this.server.of<Pod>('Pod').filter(({ spec }) => spec.nodeName === name)) {
      this.serving.delete(pod.metadata.name);
      // The taint of its node ends them, some time.
      setImmediate(() => setImmediate(() => this.evict(pod)));
    }
    this.changed();
  }

  /** Changes that the job was asked for, with what came of each. */
  changesMade(): string[] {
    return this.changes.map(({ kind, state, to }) => `${kind} ${to} ${state}`);
  }

  /** The job does not answer any more. */
  silence(): void {
    this.silent = true;
    this.changed();
  }

  private over(): boolean {
    const phase = this.job()?.status?.phase;
    return this.job() === undefined || phase === 'Succeeded' || phase === 'Failed';
  }

  private machineOf(name: string): boolean {
    const pod = this.server.of<Pod>('Pod').find(({ metadata }) => metadata.name === name);
    return pod?.spec.nodeName !== undefined && !this.dead.has(pod.spec.nodeName);
  }

  private react(kind: string, { metadata }: KubeObject, gone: boolean): void {
    if (kind === 'Pod' && !gone) this.kubelet(metadata.name);
    if (kind === 'Pod' && gone) this.serving.delete(metadata.name);
    if (kind === 'StatefulSet') this.stateful(metadata.name, gone);
    if (kind === 'Pod' && gone && metadata.labels?.[ROLE_LABEL] === 'scheduler')
      this.stateful(metadata.name.replace(/-0$/, ''), false);
  }

  private kubelet(name: string): void {
    const pod = this.server.of<Pod>('Pod').find((one) => one.metadata.name === name);
    if (!pod) return;
    if (pod.metadata.deletionTimestamp !== undefined) {
      if (this.dead.has(pod.spec.nodeName ?? '')) return;
      this.server.drop('Pod', pod.metadata);
      this.changed();
      return;
    }
    if (pod.status?.phase) return;
    // A scheduler comes back when the Node object of its machine is deleted. Here that machine is never lost.
    const scheduler = pod.metadata.labels?.[ROLE_LABEL] === 'scheduler';
    const nodes = this.server
      .of<KubeObject>('Node')
      .filter((one) => !this.dead.has(one.metadata.name) && !(scheduler && one.metadata.name === 'n1'));
    const node = nodes[Math.floor(this.random() * nodes.length)]!;
    if (pod.metadata.labels?.[ROLE_LABEL] === 'ps') this.serving.add(name);
    this.server.put('Pod', {
      ...pod,
      spec: { ...pod.spec, nodeName: node.metadata.name },
      status: { phase: 'Running', podIP: '10.0.0.1', conditions: [{ type: 'Ready', status: 'True' }] },
    } as Pod);
    this.changed();
  }

  private stateful(name: string, gone: boolean): void {
    const set = this.server.of<ObjectManifest>('StatefulSet').find(({ metadata }) => metadata.name === name);
    const metadata = { name: `${name}-0`, namespace: 'ml' };
    const pod = this.server.of<Pod>('Pod').find((one) => one.metadata.name === metadata.name);
    const replicas = gone || !set ? 0 : (set.spec as { replicas: number }).replicas;
    if (replicas === 0 && pod) this.server.drop('Pod', metadata);
    if (replicas === 0 || pod) return;
    const labels = { [JOB_LABEL]: this.job()?.metadata.name ?? '', [ROLE_LABEL]: 'scheduler' };
    const { apiVersion, kind, metadata: of, spec } = set!;
    const { template } = spec as { template: { spec: Pod['spec'] } };
    const owner = { apiVersion, kind, name, uid: of.uid ?? '', controller: true };
    this.server.put('Pod', {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { ...metadata, labels, ownerReferences: [owner] },
      spec: template.spec,
    } as Pod);
  }

  private changed(): void {
    setImmediate(() => {
      for (const change of this.changes) if (change.kind === 'scale') this.advance(change);
      for (const tell of this.links) tell();
    });
  }

  /**
   * The job knows at once who serves. It empties PS when it is asked to, a turn later, and takes back what it
   * can never do.
   */
  private link(options: JobHandle['options']): JobHandle {
    this.links.add(options.onChange);
    // A new link knows nothing of earlier requests.
    this.asked.clear();
    const world = this;
    return {
      options,
      get report(): JobReport | undefined {
        if (world.silent) return undefined;
        const nodes = world
          .pods('ps')
          .map(({ metadata: { name } }) => ({ name, alive: world.serving.has(name) }));
        const changing = world.changes.some(({ state }) => state === 'running');
        return { redundancy: 'full', reasons: [], nodes, changing, changes: structuredClone(world.changes) };
      },
      get asked() {
        return [...world.asked.values()];
      },
      ask: (ask) => world.take(ask),
      ...{ planned: undefined, tellPlan: () => {}, heardAt: undefined, looked: true },
      get told() {
        return world.told;
      },
      gather: () => {
        world.told = { at: Date.now(), underWay: false, findings: { results: { samples: 7 }, report: {} } };
        world.changed();
      },
      get saved() {
        return world.saved;
      },
      save: (generation) => {
        world.saved = { generation, at: Date.now(), underWay: true };
        setImmediate(() => {
          world.saved = { generation, at: Date.now(), underWay: false, number: ++world.checkpoints };
          world.changed();
        });
      },
      observe: async () => Promise.reject(new Error('not here')),
      ...{ rebalance: async () => {}, tell: () => {} },
      close: async () => void this.links.delete(options.onChange),
    };
  }

  private take({ key, change }: Omit<Extract<Action, { kind: 'ask' }>, 'kind'>): void {
    if (this.asked.get(key)?.underWay) return;
    const goesOn = ({ state, kind }: ChangeReport) => state === 'running' && kind === change.kind;
    const same = this.changes.find(
      (one) =>
        goesOn(one) && (change.kind === 'scale' ? one.to === change.ps : one.leaving.includes(change.node)),
    );
    if (change.kind === 'scale' && !same)
      for (const one of this.changes.filter(goesOn)) this.finish(one, 'cancelled', 'another number');
    const to = change.kind === 'scale' ? change.ps : this.serving.size - 1;
    const leaving = change.kind === 'drain' ? [change.node] : [];
    const begun = same ?? changeOf({ id: this.changes.length + 1, kind: change.kind, to, leaving });
    if (!same) this.changes.push(begun);
    this.asked.set(key, { key, id: begun.id, at: Date.now(), underWay: true });
    this.changed();
    setImmediate(() => setImmediate(() => this.advance(begun)));
  }

  /** Takes a change one step further. */
  private advance(change: ChangeReport): void {
    if (change.state !== 'running') return;
    const indexOf = ({ metadata }: Pod) => Number(metadata.labels?.[INDEX_LABEL]);
    const serving = this.active('ps')
      .filter(({ metadata }) => this.serving.has(metadata.name))
      .sort((a, b) => indexOf(b) - indexOf(a));
    if (change.kind === 'drain') {
      for (const pod of serving.filter(({ metadata }) => change.leaving.includes(metadata.name)))
        this.end(pod, 0);
      return this.finish(change, 'done');
    }
    if (serving.length < change.to)
      return this.stuck ? this.finish(change, 'cancelled', 'no progress') : undefined;
    for (const pod of serving.slice(0, serving.length - change.to)) this.end(pod, 0);
    this.finish(change, 'done');
  }

  private finish(change: ChangeReport, state: 'done' | 'cancelled', reason = ''): void {
    Object.assign(change, { state, reason });
    for (const one of this.asked.values()) {
      if (one.id !== change.id) continue;
      const problem = state === 'cancelled' ? { problem: reason } : {};
      this.asked.set(one.key, { ...one, ...problem, at: Date.now(), underWay: false });
    }
    this.changed();
  }
}
