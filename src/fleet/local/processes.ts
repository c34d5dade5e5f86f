/**
 * The processes of a local job: started, watched, killed on purpose, started again. A process that ends
 * without being told to is started again as a supervisor would (restarts.ts), or fails the run. Whatever
 * happens, none is left behind.
 */
import { join } from 'node:path';
import { KintsugiError } from '../../common/errors.js';
import { monotonicMs } from '../../net/log.js';
import type { SavePlan } from '../../protocol/saving.js';
import { RESTART_EXIT } from '../../roles/ps/departure.js';
import { Child, type Exit, PLACE_TRIED } from './child.js';
import type { RoleEvent } from './events.js';
import type { KillRole } from './kills.js';
import type { LocalOptions } from './options.js';
import type { Crew } from './provider.js';
import { FAILING_CRASHES, ProcessLives, tooOften } from './restarts.js';

/** A killed scheduler always comes back, also when killed PS do not. */
const SCHEDULER_RESPAWN_MS = 1000;
/** Many processes start at once on a small machine: give them time before "unreachable". */
const CONNECT = ['--connect-timeout', '60s'];

/** A checkpoint, by its place and number. */
export interface RestoredFrom {
  url: string;
  number: number;
}

export interface ProcessesOptions {
  options: LocalOptions;
  /** Directory for the scheduler's state; the caller removes it at the end. */
  directory: string;
  onEvent(event: RoleEvent, line: string): void;
  /** Called when a killed process is up again, or one that crashed. */
  onBack(name: string): void;
  /**
   * A process that was ready once has ended unasked, and is started again after `pauseMs`. Absent: such an
   * end fails the run.
   */
  onCrash?(name: string, death: KintsugiError, pauseMs: number): void;
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
  /** Workers that were killed or crashed, and will be started again. */
  private readonly revived = new Set<string>();
  private readonly lives = new Map<string, ProcessLives>();
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

  /** The result of `promise`, unless the run fails first. */
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

  /** Processes that were killed or crashed, will come back and have not yet. */
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
    this.isUp('scheduler');
  }

  /** Starts a PS under the next number that was never used. */
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
    if (options.backgroundShare !== undefined) args.push('--background-share', `${options.backgroundShare}`);
    if (options.metricsPerShard) args.push('--metrics-per-shard');
    await this.start(name, args).event('ps.ready');
    this.isUp(name);
  }

  private isUp(name: string): void {
    this.ready.add(name);
    this.livesOf(name).served = true;
  }

  private livesOf(name: string): ProcessLives {
    const known = this.lives.get(name) ?? new ProcessLives(this.workers.has(name) ? 'worker' : 'ps');
    this.lives.set(name, known);
    return known;
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
      // A killed worker that comes back is still one of them.
      if (this.children.get(name) === child && !this.revived.has(name)) this.ended(name);
    });
    await child.event('worker.training');
    if (this.children.get(name) === child && child.alive) this.isUp(name);
  }

  /** Names of the workers that train or are about to, in the order of their starts. */
  trainers(): string[] {
    return [...this.training].filter((name) => !this.leaving.has(name));
  }

  /** Starts a worker that trains, under the next number that was never used. */
  trainAnother(args: string[]): void {
    const name = `worker-${this.workers.size}`;
    this.train(name, args).catch((error: Error) => {
      if (!this.leaving.has(name) && !this.done.has(name)) this.fail(error);
    });
  }

  /** The crew of an autoscaler: its workers get `args`. */
  crew(args: string[]): Crew {
    return {
      startPs: () => this.startAnotherPs(),
      workers: () => this.trainers(),
      startWorker: () => this.trainAnother(args),
      endWorker: (name) => this.endTrainer(name),
    };
  }

  /** Ends a worker after its batch; it is killed where that takes long. */
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
      ...(options.placeTried && PLACE_TRIED),
    };
    const child = new Child({
      ...{ name, args, cliPath: options.cliPath, env },
      onEvent: (event, line) => {
        if (event.event === 'worker.done') this.done.add(name);
        onEvent(event, line);
      },
    });
    this.children.set(name, child);
    this.livesOf(name).begin(monotonicMs());
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
        return this.respawn(name, child, 0, () => this.startAgain(name));
      // A PS ends by itself only when the job told it to leave. A worker that reported its end is done,
      // whatever its exit code.
      const finished =
        (args[0] === 'ps' && exit.code === 0) ||
        (args[0] === 'worker' && (exit.code === 0 || this.done.has(name)));
      if (!child.expected && !finished) this.onCrash(name, child, exit);
    });
    return child;
  }

  /** Starts the next process of this name. */
  private startAgain(name: string): Promise<void> {
    if (name === 'scheduler') return this.startScheduler();
    const worker = this.workers.get(name);
    if (!worker) return this.startPs(Number(name.slice(3)));
    this.revived.delete(name);
    return this.train(name, worker);
  }

  /** A process that crashes is started again. One that is refused would say it again: that fails the run. */
  private onCrash(name: string, child: Child, exit: Exit): void {
    const lives = this.livesOf(name);
    const death = child.deathOf(exit);
    const { ending, pauseMs } = lives.end(exit, death.code, monotonicMs());
    const { inARow } = lives.crashes;
    if (!this.settings.onCrash || !lives.served || ending === 'refused') return this.fail(death);
    if (inARow >= FAILING_CRASHES) return this.fail(tooOften(death, inARow));
    const record = {
      ...{ mono: monotonicMs(), level: 'warn', event: 'process.ended', source: 'launcher', name },
      ...{ pid: child.pid, ...exit, ending, pauseMs, message: death.message },
    };
    this.settings.onEvent(record, JSON.stringify(record));
    this.settings.onCrash(name, death, pauseMs);
    if (this.workers.has(name)) this.revived.add(name);
    this.respawn(name, child, pauseMs, () => this.startAgain(name));
  }

  // ---- ends in order, and failures on purpose

  /** Sends SIGTERM: a PS hands over what it holds, and ends. */
  async terminate(name: string): Promise<Exit> {
    const child = this.children.get(name);
    if (!child) throw new KintsugiError('BAD_ARGUMENT', `no process "${name}" was started`);
    child.expected = true;
    child.signal('SIGTERM');
    return child.exited;
  }

  /** Sends SIGKILL now, and starts a new process later. */
  kill(role: KillRole, name: string): void {
    const { respawnMs } = this.settings.options;
    const child = this.children.get(name);
    this.ready.delete(name);
    child?.kill();
    const afterMs = role === 'scheduler' ? (respawnMs ?? SCHEDULER_RESPAWN_MS) : respawnMs;
    if (afterMs === undefined) return;
    if (role === 'worker') this.revived.add(name);
    this.respawn(name, child, afterMs, () => this.startAgain(name));
  }

  private respawn(name: string, ended: Child | undefined, afterMs: number, start: () => Promise<void>): void {
    this.respawning++;
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      // The port of the old process is free only when it is really gone.
      Promise.resolve(ended?.exited)
        .then(start)
        .then(
          () => this.settings.onBack(name),
          (error: Error) => {
            const next = this.children.get(name);
            // The end of the next process is judged where every end is.
            const isJudged = this.settings.onCrash && next !== ended && !next?.alive;
            if (!this.stopping && !isJudged) this.fail(error);
          },
        )
        .finally(() => {
          this.respawning--;
        })
        .catch((error: Error) => this.fail(error));
    }, afterMs);
    this.timers.add(timer);
  }

  // ---- the end

  /**
   * Asks all to stop, and waits until they are gone. The scheduler ends first: one that lives takes PS that
   * end for losses, which it counts and begins to recover.
   */
  async stop(): Promise<void> {
    this.quiet();
    await this.children.get('scheduler')?.stop();
    await Promise.all([...this.children.values()].map((child) => child.stop()));
    process.off('exit', this.emergency);
  }

  /** Sends SIGKILL to all: after a failure, or when this process is about to end. */
  async abandon(): Promise<void> {
    this.killAll();
    await Promise.all([...this.children.values()].map((child) => child.exited));
    process.off('exit', this.emergency);
  }

  /** Sends SIGKILL to all, at once. Nothing is started any more. */
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
