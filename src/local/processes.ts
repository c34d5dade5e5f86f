/**
 * The processes of a local job: started, watched, killed on purpose, started again. A process that ends
 * without being told to fails the run; whatever happens, none is left behind.
 */
import { join } from 'node:path';
import { KintsugiError } from '../errors.js';
import type { SavePlan } from '../protocol/saving.js';
import { RESTART_EXIT } from '../runtime/departure.js';
import { monotonicMs } from '../runtime/log.js';
import { Child, type Exit } from './child.js';
import type { RoleEvent } from './events.js';
import type { KillRole } from './kills.js';
import type { LocalOptions } from './options.js';
import type { Crew } from './provider.js';

/** A killed scheduler always comes back, also when killed PS do not. */
const SCHEDULER_RESPAWN_MS = 1000;
/** Many processes start at once on a small machine: give them time before "unreachable". */
const CONNECT = ['--connect-timeout', '60s'];

/** A checkpoint of a place. */
export interface RestoredFrom {
  url: string;
  number: number;
}

export interface ProcessesOptions {
  options: LocalOptions;
  /** For the scheduler's state; removed by the caller at the end. */
  directory: string;
  onEvent(event: RoleEvent, line: string): void;
  /** A killed process is up again. */
  onBack(name: string): void;
}

export class Processes {
  /** Rejects when a process ends that should not have, or `fail` is called. */
  readonly failed: Promise<never>;
  address = '';
  /** The checkpoint that the scheduler begins with. */
  restore: RestoredFrom | undefined;
  private reject: (error: Error) => void = () => {};
  private readonly children = new Map<string, Child>();
  private readonly ready = new Set<string>();
  private readonly timers = new Set<NodeJS.Timeout>();
  /** Arguments of the workers that train, by name, and those that have not ended or will come back. */
  private readonly workers = new Map<string, string[]>();
  private readonly training = new Set<string>();
  private readonly done = new Set<string>();
  /** Workers that were told to end. */
  private readonly leaving = new Set<string>();
  /** Killed workers that will be started again. */
  private readonly revived = new Set<string>();
  private allTrained: () => void = () => {};
  private respawning = 0;
  private nextPs = 0;
  private stopping = false;
  private failure: Error | undefined;
  private readonly emergency = () => this.killAll();

  constructor(private readonly settings: ProcessesOptions) {
    this.failed = new Promise((_, reject) => {
      this.reject = reject;
    });
    this.failed.catch(() => {});
    process.on('exit', this.emergency);
  }

  /** What `promise` gives, unless the run fails first. */
  race<T>(promise: Promise<T>): Promise<T> {
    return Promise.race([promise, this.failed]);
  }

  fail(error: Error): void {
    this.failure ??= error;
    this.reject(error);
  }

  /** @throws what made the run fail */
  check(): void {
    if (this.failure) throw this.failure;
  }

  /** Killed processes that will come back and have not yet. */
  get returning(): number {
    return this.respawning;
  }

  isReady(name: string): boolean {
    return this.ready.has(name);
  }

  /** Names of the PS that are up, in the order of their numbers. */
  readyPs(): string[] {
    return Array.from({ length: this.nextPs }, (_, index) => psName(index)).filter((name) =>
      this.ready.has(name),
    );
  }

  // ---- roles

  async startScheduler(): Promise<void> {
    const { options, directory } = this.settings;
    const listen = this.address === '' ? '127.0.0.1:0' : this.address;
    const groups = options.groups === undefined ? [] : ['--groups', `${options.groups}`];
    const shape = ['--ps', `${options.ps}`, '--code', options.code, ...groups];
    const args = ['scheduler', '--listen', listen, '--dir', join(directory, 'scheduler'), ...shape];
    args.push(...planArgs(options.checkpoint), ...restoreArgs(this.restore));
    if (options.balanceJoining === false) args.push('--no-balance-joining');
    const ready = await this.start('scheduler', args).event('scheduler.ready');
    this.address = String(ready.address);
    this.ready.add('scheduler');
  }

  /** One more than were ever started. */
  async startAnotherPs(): Promise<void> {
    await this.startPs(this.nextPs);
  }

  async startPs(index: number): Promise<void> {
    const { options } = this.settings;
    const name = psName(index);
    this.nextPs = Math.max(this.nextPs, index + 1);
    const args = ['ps', ...this.connect(), '--name', name, '--host-label', `host-${index}`];
    if (index >= options.ps && index < options.ps + options.standby) args.push('--standby');
    if (options.memory !== undefined) args.push('--memory', options.memory);
    if (options.recoveryRate !== undefined) args.push('--recovery-rate', options.recoveryRate);
    if (options.moveRate !== undefined) args.push('--move-rate', options.moveRate);
    if (options.metricsPerShard) args.push('--metrics-per-shard');
    await this.start(name, args).event('ps.ready');
    this.ready.add(name);
  }

  startWorker(name: string, args: string[]): Child {
    return this.start(name, ['worker', ...this.connect(), ...args]);
  }

  /** Starts a worker that trains; `trained` waits for it. */
  async train(name: string, args: string[]): Promise<void> {
    this.workers.set(name, args);
    this.training.add(name);
    const child = this.startWorker(name, ['--name', name, ...args]);
    void child.exited.then(() => {
      // A killed one that comes back is still one of them.
      if (this.children.get(name) === child && !this.revived.has(name)) this.ended(name);
    });
    await child.event('worker.training');
    if (this.children.get(name) === child && child.alive) this.ready.add(name);
  }

  /** Names of those that train or are about to, in the order of their starts. */
  trainers(): string[] {
    return [...this.training].filter((name) => !this.leaving.has(name));
  }

  /** One more than were ever started, with the arguments of the others. */
  trainAnother(args: string[]): void {
    const name = `worker-${this.workers.size}`;
    this.train(name, args).catch((error: Error) => {
      if (!this.leaving.has(name) && !this.done.has(name)) this.fail(error);
    });
  }

  /** For who adds and removes PS and workers that are told `args`. */
  crew(args: string[]): Crew {
    return {
      startPs: () => this.startAnotherPs(),
      workers: () => this.trainers(),
      startWorker: () => this.trainAnother(args),
      endWorker: (name) => this.endTrainer(name),
    };
  }

  /** It ends after its batch; it is killed where that takes long. */
  endTrainer(name: string): void {
    this.leaving.add(name);
    void this.children.get(name)?.stop();
  }

  private ended(name: string): void {
    this.training.delete(name);
    if (this.training.size === 0) this.allTrained();
  }

  /** Resolves when every worker has ended and none will come back. */
  trained(): Promise<void> {
    return new Promise((resolve) => {
      this.allTrained = resolve;
      if (this.training.size === 0) resolve();
    });
  }

  private connect(): string[] {
    return ['--scheduler', this.address, ...CONNECT];
  }

  private start(name: string, args: string[]): Child {
    if (this.stopping) throw new KintsugiError('ABORTED', 'the run is ending');
    const { options, onEvent } = this.settings;
    const env = {
      KINTSUGI_TOKEN: options.token ?? '',
      KINTSUGI_NODE_TOKEN: args[0] === 'worker' ? '' : (options.nodeToken ?? ''),
    };
    const child = new Child({
      ...{ name, args, cliPath: options.cliPath, env },
      onEvent: (event, line) => {
        if (event.event === 'worker.done') this.done.add(name);
        onEvent(event, line);
      },
    });
    this.children.set(name, child);
    const record = {
      mono: monotonicMs(),
      event: 'process.started',
      source: 'launcher',
      name,
      pid: child.pid,
    };
    onEvent(record, JSON.stringify(record));
    void child.exited.then((exit) => {
      if (this.children.get(name) === child) this.ready.delete(name);
      if (args[0] === 'ps' && exit.code === RESTART_EXIT && !child.expected)
        return this.respawn(name, child, 0, () => this.startPs(Number(name.slice(3))));
      // A PS ends by itself only when the job told it to leave. A worker that reported its end is done,
      // whatever its exit code.
      const finished =
        (args[0] === 'ps' && exit.code === 0) ||
        (args[0] === 'worker' && (exit.code === 0 || this.done.has(name)));
      if (!child.expected && !finished) this.fail(child.deathOf(exit));
    });
    return child;
  }

  // ---- ends in order, and failures on purpose

  /** SIGTERM: a PS hands over what it holds, and ends. */
  async terminate(name: string): Promise<Exit> {
    const child = this.children.get(name);
    if (!child) throw new KintsugiError('BAD_ARGUMENT', `no process "${name}" was started`);
    child.expected = true;
    child.signal('SIGTERM');
    return child.exited;
  }

  /** SIGKILL now, and a new process later. */
  kill(role: KillRole, name: string): void {
    const { respawnMs } = this.settings.options;
    const child = this.children.get(name);
    this.ready.delete(name);
    child?.kill();
    if (role === 'scheduler')
      this.respawn(name, child, respawnMs ?? SCHEDULER_RESPAWN_MS, () => this.startScheduler());
    else if (respawnMs !== undefined && role === 'worker') {
      this.revived.add(name);
      this.respawn(name, child, respawnMs, () => {
        this.revived.delete(name);
        return this.train(name, this.workers.get(name) ?? []);
      });
    } else if (respawnMs !== undefined)
      this.respawn(name, child, respawnMs, () => this.startPs(Number(name.slice(3))));
  }

  private respawn(
    name: string,
    killed: Child | undefined,
    afterMs: number,
    start: () => Promise<void>,
  ): void {
    this.respawning++;
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      // Its port is free only when it is really gone.
      Promise.resolve(killed?.exited)
        .then(start)
        .then(() => {
          this.respawning--;
          this.settings.onBack(name);
        })
        .catch((error: Error) => {
          if (!this.stopping) this.fail(error);
        });
    }, afterMs);
    this.timers.add(timer);
  }

  // ---- the end

  /**
   * Asks all to stop, waits until they are gone. The scheduler ends first: to one that lives, the others that
   * end are losses, which it counts and begins to recover.
   */
  async stop(): Promise<void> {
    this.quiet();
    await this.children.get('scheduler')?.stop();
    await Promise.all([...this.children.values()].map((child) => child.stop()));
    process.off('exit', this.emergency);
  }

  /** SIGKILL to all: after a failure, or when this process is about to end. */
  async abandon(): Promise<void> {
    this.killAll();
    await Promise.all([...this.children.values()].map((child) => child.exited));
    process.off('exit', this.emergency);
  }

  /** SIGKILL to all, at once. Nothing is started any more. */
  killAll(): void {
    this.quiet();
    for (const child of this.children.values()) if (child.alive) child.kill();
  }

  private quiet(): void {
    this.stopping = true;
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
    for (const child of this.children.values()) child.expected = true;
  }
}

export function psName(index: number): string {
  return `ps-${index}`;
}

function restoreArgs(manifest: RestoredFrom | undefined): string[] {
  return manifest ? ['--restore', `${manifest.url}@${manifest.number}`] : [];
}

function planArgs(plan: SavePlan | undefined): string[] {
  if (!plan) return [];
  const { url, everyMs, keep, rate, barrier } = plan;
  const args = ['--checkpoint', url, '--every', `${everyMs}ms`, '--keep', `${keep}`];
  return [...args, '--checkpoint-rate', `${rate}`, ...(barrier ? ['--barrier'] : [])];
}
