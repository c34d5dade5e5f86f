/** What is around an operator: kubelets, the controller of StatefulSets, machines, and the job itself. */
import type { KubeObject, Manifest, Pod } from '../../src/operator/objects.js';
import { type JobLink, Operator } from '../../src/operator/operator.js';
import { INDEX_LABEL, JOB_LABEL, ROLE_LABEL } from '../../src/operator/reconcile/names.js';
import type { Asked, JobReport } from '../../src/operator/reconcile/observed.js';
import type { TrainingJob } from '../../src/operator/types.js';
import { MemoryServer, randomOf } from './server.js';
import { jobOf, nodeOf } from './support.js';

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
  private asked: Asked | undefined;
  operator: Operator;

  constructor(seed: number, nodes = 4) {
    this.random = randomOf(seed);
    this.server = new MemoryServer(this.random);
    for (let index = 1; index <= nodes; index++) this.server.put('Node', nodeOf(`n${index}`));
    const { server } = this;
    const remove = server.delete.bind(server);
    server.delete = async (kind, namespace, name, options) => {
      const doing = kind === 'Pod' && this.serving.has(name) && this.machineOf(name) && !this.over();
      if (doing) this.problems.push(`${name} is deleted while it serves`);
      if (namespace !== 'ml') this.problems.push(`${kind} ${namespace}/${name} is not its own`);
      await remove(kind, namespace, name, options);
    };
    server.onChange = (kind, object, gone) => {
      setImmediate(() => this.react(kind, object as Pod, gone));
      for (const check of [...this.waiting]) check();
    };
    this.operator = this.begin();
  }

  begin(): Operator {
    this.operator = new Operator({
      ...{ api: this.server, namespace: 'ml', log: QUIET as never, resyncMs: 2000 },
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

  /** Resolves when it is so, which may be now. */
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

  evict(pod: Pod): void {
    if (pod.metadata.deletionTimestamp !== undefined) return;
    this.server.put('Pod', { ...pod, metadata: { ...pod.metadata, deletionTimestamp: 'now' } });
  }

  /** The machine is gone: its Pods are only told to end after a while, and never do. */
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
    const nodes = this.server.of<KubeObject>('Node').filter((one) => !this.dead.has(one.metadata.name));
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
    const set = this.server.of<Manifest>('StatefulSet').find(({ metadata }) => metadata.name === name);
    const metadata = { name: `${name}-0`, namespace: 'ml' };
    const pod = this.server.of<Pod>('Pod').find((one) => one.metadata.name === metadata.name);
    const replicas = gone || !set ? 0 : (set.spec as { replicas: number }).replicas;
    if (replicas === 0 && pod) this.server.drop('Pod', metadata);
    if (replicas === 0 || pod) return;
    const labels = { [JOB_LABEL]: this.job()?.metadata.name ?? '', [ROLE_LABEL]: 'scheduler' };
    this.server.put('Pod', {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { ...metadata, labels },
      spec: {},
    } as Pod);
  }

  private changed(): void {
    setImmediate(() => {
      for (const tell of this.links) tell();
    });
  }

  /** The job knows at once who serves, and empties the newest PS when it is asked to. */
  private link(options: JobLink['options']): JobLink {
    this.links.add(options.onChange);
    const world = this;
    return {
      options,
      get report(): JobReport {
        const nodes = world
          .pods('ps')
          .map(({ metadata: { name } }) => ({ name, alive: world.serving.has(name) }));
        return { redundancy: 'full', reasons: [], nodes, changing: world.asked?.underWay ?? false };
      },
      get asked() {
        return world.asked;
      },
      scale: (ps) => {
        world.asked = { ps, at: Date.now(), underWay: true };
        setImmediate(() => world.shrink(ps));
      },
      close: async () => void this.links.delete(options.onChange),
    };
  }

  private shrink(ps: number): void {
    const indexOf = ({ metadata }: Pod) => Number(metadata.labels?.[INDEX_LABEL]);
    const serving = this.active('ps').filter(({ metadata }) => this.serving.has(metadata.name));
    const newest = serving.sort((a, b) => indexOf(b) - indexOf(a));
    for (const pod of newest.slice(0, Math.max(0, serving.length - ps))) this.end(pod, 0);
    this.asked = { ps, at: Date.now(), underWay: false };
    this.changed();
  }
}
