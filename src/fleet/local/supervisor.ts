/**
 * Roles of one machine under one process, for as long as the job lasts. One that crashes is started again,
 * after longer and longer pauses, and the others do not notice. All are told to end together, and none
 * survives the supervisor, however that ends (child.ts).
 */
import type { KintsugiError } from '../../common/errors.js';
import { type Logger, monotonicMs } from '../../net/log.js';
import { Child, type Exit } from './child.js';
import type { RoleEvent } from './events.js';
import { endingOf, FAILING_CRASHES, ProcessLives, tooOften } from './restarts.js';

export interface SupervisorOptions {
  /** Name and arguments of each process. */
  processes: readonly { name: string; args: string[] }[];
  cliPath?: string | undefined;
  env?: NodeJS.ProcessEnv | undefined;
  /** After so many crashes of a process in a row the supervisor ends. Default: it goes on for ever. */
  maxCrashes?: number | undefined;
  /** A log record of a process. */
  onEvent(event: RoleEvent, line: string): void;
  /** A line on standard error that is no record. */
  onLine(line: string, name: string): void;
  log: Logger;
}

interface ProcessPlace {
  readonly name: string;
  readonly args: string[];
  readonly lives: ProcessLives;
  child: Child | undefined;
  timer: NodeJS.Timeout | undefined;
}

/** Records of roles that are at work. */
const SERVES = new Set(['scheduler.ready', 'ps.ready', 'replica.ready', 'worker.training']);

export class Supervisor {
  /** Resolves when every process has left; rejects when one is refused, or has crashed too often. */
  readonly ended: Promise<void>;
  private readonly places: ProcessPlace[];
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
      ...{ name, args, lives: new ProcessLives(args[0] ?? ''), child: undefined, timer: undefined },
    }));
    for (const place of this.places) this.start(place);
  }

  private start(place: ProcessPlace): void {
    const { options } = this;
    const { name, args } = place;
    const child = new Child({
      ...{ name, args, cliPath: options.cliPath, env: options.env },
      onEvent: (event, line) => {
        if (SERVES.has(event.event)) place.lives.served = true;
        options.onEvent(event, line);
      },
      onOther: (line) => options.onLine(line, name),
    });
    place.child = child;
    place.lives.begin(monotonicMs());
    if (child.pid !== undefined) options.log.info('process.started', { process: name, pid: child.pid });
    void child.exited.then((exit) => {
      if (!this.leaving) this.onExit(place, child, exit);
    });
  }

  private onExit(place: ProcessPlace, child: Child, exit: Exit): void {
    const death = child.deathOf(exit);
    const { ending, pauseMs } = place.lives.end(exit, death.code, monotonicMs());
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
        if (place.lives.crashes.inARow >= (this.options.maxCrashes ?? Number.POSITIVE_INFINITY))
          return this.reject(tooOften(death, place.lives.crashes.inARow));
        if (ending === 'crashed') this.sayFailing(place, death, pauseMs);
        place.timer = setTimeout(() => this.start(place), pauseMs);
    }
  }

  /** Logs an error for a PS that crashes again and again, which would go unnoticed among the others. */
  private sayFailing({ name, lives }: ProcessPlace, { message }: KintsugiError, pauseMs: number): void {
    const { inARow } = lives.crashes;
    if (inARow < FAILING_CRASHES) return;
    this.options.log.error('process.failing', { process: name, crashes: inARow, pauseMs, message });
  }

  /**
   * Ends all, and waits for them. At SIGTERM each is drained; the scheduler sees to it that this goes
   * together, or one after the other where too few nodes would be left.
   * @throws the first failure of a PS that was not drained
   */
  async stop(signal: 'SIGTERM' | 'SIGINT'): Promise<void> {
    this.leaving = true;
    const failures: KintsugiError[] = [];
    await Promise.all(
      this.places.map(async ({ child, timer, lives }) => {
        clearTimeout(timer);
        if (!child?.alive) return;
        if (signal === 'SIGINT') return child.stop();
        child.expected = true;
        child.signal('SIGTERM');
        const exit = await child.exited;
        const drained = ['left', 'restart'].includes(endingOf(exit, lives.served));
        // A PS that had only just begun ends by the signal itself.
        if (!drained && exit.signal !== 'SIGTERM') failures.push(child.deathOf(exit));
      }),
    );
    if (failures[0]) throw failures[0];
  }
}
