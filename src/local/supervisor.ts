/**
 * Several PS of one machine under one process, for as long as the job lasts. One that crashes is started
 * again, after longer and longer pauses, and the others do not notice. All are told to end together, and none
 * survives the supervisor, however that ends (child.ts).
 */
import type { KintsugiError } from '../errors.js';
import { type Logger, monotonicMs } from '../runtime/log.js';
import { Child, type Exit } from './child.js';
import type { RoleEvent } from './events.js';
import { AWAY_PAUSE_MS, Crashes, endingOf, FAILING_CRASHES } from './restarts.js';

export interface SupervisorOptions {
  /** Of each process: its name, and its arguments of the command line. */
  processes: readonly { name: string; args: string[] }[];
  cliPath?: string | undefined;
  env?: NodeJS.ProcessEnv | undefined;
  /** A log record of a process. */
  onEvent(event: RoleEvent, line: string): void;
  /** Anything else that one wrote to standard error. */
  onLine(line: string, name: string): void;
  log: Logger;
}

interface Place {
  readonly name: string;
  readonly args: string[];
  readonly crashes: Crashes;
  child: Child | undefined;
  startedAt: number;
  /** It was ready once, in this life or an earlier one. */
  served: boolean;
  timer: NodeJS.Timeout | undefined;
}

export class Supervisor {
  /** Resolves when every process has left the job; rejects when one is refused at its start. */
  readonly ended: Promise<void>;
  private readonly places: Place[];
  private leaving = false;
  private left = 0;
  private resolve: () => void = () => {};
  private reject: (error: Error) => void = () => {};

  constructor(private readonly options: SupervisorOptions) {
    this.ended = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.ended.catch(() => {});
    this.places = options.processes.map(({ name, args }) => ({
      ...{ name, args, crashes: new Crashes() },
      ...{ child: undefined, startedAt: 0, served: false, timer: undefined },
    }));
    for (const place of this.places) this.start(place);
  }

  private start(place: Place): void {
    const { options } = this;
    const { name, args } = place;
    const child = new Child({
      ...{ name, args, cliPath: options.cliPath, env: options.env },
      onEvent: (event, line) => {
        if (event.event === 'ps.ready') place.served = true;
        options.onEvent(event, line);
      },
      onOther: (line) => options.onLine(line, name),
    });
    place.child = child;
    place.startedAt = monotonicMs();
    if (child.pid !== undefined) options.log.info('process.started', { process: name, pid: child.pid });
    void child.exited.then((exit) => {
      if (!this.leaving) this.onExit(place, child, exit);
    });
  }

  private onExit(place: Place, child: Child, exit: Exit): void {
    const death = child.deathOf(exit);
    const ending = endingOf(exit, place.served, death.code);
    const againMs = ending === 'away' ? AWAY_PAUSE_MS : 0;
    const pauseMs = ending === 'crashed' ? place.crashes.add(monotonicMs() - place.startedAt) : againMs;
    const why = child.pid === undefined ? { message: death.message } : {};
    const fields = { process: place.name, pid: child.pid, ...exit, ending, ...why };
    switch (ending) {
      case 'left':
        this.options.log.info('process.ended', fields);
        this.left++;
        if (this.left === this.places.length) this.resolve();
        return;
      case 'refused':
        return this.reject(death);
      default:
        if (ending !== 'restart') this.options.log.warn('process.ended', { ...fields, pauseMs });
        else this.options.log.info('process.ended', fields);
        if (ending === 'crashed') this.sayFailing(place, death, pauseMs);
        place.timer = setTimeout(() => this.start(place), pauseMs);
    }
  }

  /** One that crashes again and again would go unnoticed among the others. */
  private sayFailing({ name, crashes }: Place, { message }: KintsugiError, pauseMs: number): void {
    const { inARow } = crashes;
    if (inARow < FAILING_CRASHES) return;
    this.options.log.error('process.failing', { process: name, crashes: inARow, pauseMs, message });
  }

  /**
   * Ends all, and waits for them. At SIGTERM each is drained; the scheduler sees to it that this goes
   * together, or one after the other where too few nodes would be left.
   * @throws the first failure of one that was not drained
   */
  async stop(signal: 'SIGTERM' | 'SIGINT'): Promise<void> {
    this.leaving = true;
    const failures: KintsugiError[] = [];
    await Promise.all(
      this.places.map(async ({ child, timer, served }) => {
        clearTimeout(timer);
        if (!child?.alive) return;
        if (signal === 'SIGINT') return child.stop();
        child.expected = true;
        child.signal('SIGTERM');
        const exit = await child.exited;
        const drained = ['left', 'restart'].includes(endingOf(exit, served));
        // One that had only just begun ends by the signal itself.
        if (!drained && exit.signal !== 'SIGTERM') failures.push(child.deathOf(exit));
      }),
    );
    if (failures[0]) throw failures[0];
  }
}
