/**
 * One role as a process of the same command line. Its standard error carries log records, one per line; other
 * lines are kept for the error message when it dies. Its standard input is a pipe from this process: when
 * this process ends, for whatever reason, the pipe ends and the child exits.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../common/errors.js';
import { parseEvent, type RoleEvent } from './events.js';

/** The command line that is beside this file once compiled. */
export const CLI_PATH = fileURLToPath(new URL('../../cli/main.js', import.meta.url));
/** The child looks for this variable to know that it must follow its launcher. */
export const LIFELINE = { KINTSUGI_LIFELINE: 'stdin' };
/** A scheduler with this variable does not try its place of checkpoints: its launcher did a moment ago. */
export const PLACE_TRIED = { KINTSUGI_PLACE_TRIED: 'yes' };
/** Last lines that are kept for the message about its death. */
const LAST_LINES = 5;
/** A role that was asked to stop and has not after this time is killed. */
const STOP_MS = 5000;

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export interface ChildOptions {
  name: string;
  args: string[];
  cliPath?: string | undefined;
  /** Program and arguments in front of the command line; default: none. */
  prefix?: readonly string[] | undefined;
  env?: NodeJS.ProcessEnv | undefined;
  /** Called with each record and its raw line. */
  onEvent(event: RoleEvent, line: string): void;
  /** A line that is no record. */
  onOther?(line: string): void;
}

export class Child {
  readonly name: string;
  /** Resolves when the process is gone and everything it wrote was read, or when it could not be started. */
  readonly exited: Promise<Exit>;
  /** True: somebody asked it to end. Any other end is an error of the run. */
  expected = false;
  alive = true;
  private readonly process: ChildProcess | undefined;
  /** Why the system did not start it. */
  private refusal: Error | undefined;
  private gone: (exit: Exit) => void = () => {};
  private readonly lastLines: string[] = [];
  private errorLine: string | undefined;
  private readonly waiters = new Map<string, ((event: RoleEvent) => void)[]>();

  constructor(private readonly options: ChildOptions) {
    this.name = options.name;
    this.exited = new Promise((resolve) => {
      this.gone = resolve;
    });
    // `spawn` throws for want of memory. For want of descriptors it makes no pipes, and emits 'error'.
    try {
      this.process = this.spawn();
    } catch (error) {
      this.refused(error as Error);
      return;
    }
    const { stdin, stderr } = this.process;
    stdin?.on('error', () => {});
    if (stderr) {
      const lines = createInterface({ input: stderr, crlfDelay: Number.POSITIVE_INFINITY });
      lines.on('line', (line) => this.onLine(line));
    }
    this.process.on('error', (error) => {
      if (this.pid === undefined) this.refused(error);
      else this.lastLines.push(error.message);
    });
    this.process.on('exit', () => {
      this.alive = false;
    });
    this.process.on('close', (code, signal) => {
      this.alive = false;
      this.gone({ code, signal });
    });
  }

  private refused(why: Error): void {
    this.refusal = why;
    this.alive = false;
    this.gone({ code: null, signal: null });
  }

  private spawn(): ChildProcess {
    const { prefix, cliPath, args, env } = this.options;
    const node = [process.execPath, cliPath ?? CLI_PATH];
    const [program, ...rest] = [...(prefix ?? []), ...node, ...args, '--log-format', 'json'];
    return spawn(program!, rest, {
      stdio: ['pipe', 'ignore', 'pipe'],
      // Roles of one machine talk over loopback without TLS, and their job is kept where the arguments say,
      // whatever is set for jobs elsewhere.
      env: { ...process.env, KINTSUGI_TLS_CA: '', KINTSUGI_STORE: '', ...env, ...LIFELINE },
      // A group of its own: Ctrl-C reaches the launcher alone, which then ends the run in order.
      detached: true,
    });
  }

  get pid(): number | undefined {
    return this.process?.pid;
  }

  private onLine(line: string): void {
    if (line.startsWith('kintsugi: ')) this.errorLine = line;
    const event = parseEvent(line, this.name);
    if (!event || event.level === 'error') {
      this.lastLines.push(line);
      if (this.lastLines.length > LAST_LINES) this.lastLines.shift();
    }
    if (!event) return this.options.onOther?.(line);
    this.options.onEvent(event, line);
    for (const waiter of this.waiters.get(event.event)?.splice(0) ?? []) waiter(event);
  }

  /** The next record of that name. @throws what `deathOf` says when the process ends first */
  event(name: string): Promise<RoleEvent> {
    const arrived = new Promise<RoleEvent>((resolve) => {
      const known = this.waiters.get(name);
      if (known) known.push(resolve);
      else this.waiters.set(name, [resolve]);
    });
    return Promise.race([arrived, this.exited.then((exit) => Promise.reject(this.deathOf(exit)))]);
  }

  /** The error of a process that has ended: its own error line, or how it ended and its last lines. */
  deathOf({ code, signal }: Exit): KintsugiError {
    const match = /^kintsugi: ([A-Z_]+): (.*)$/.exec(this.errorLine ?? '');
    if (match) return new KintsugiError(match[1] as KintsugiError['code'], `${this.name}: ${match[2]}`);
    if (this.refusal)
      return new KintsugiError('INTERNAL', `${this.name} cannot be started: ${this.refusal.message}`);
    const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
    const said = this.lastLines.length > 0 ? `; its last lines: ${this.lastLines.join(' | ')}` : '';
    return new KintsugiError('INTERNAL', `${this.name} ${how} unasked${said}`);
  }

  /** SIGKILL: no goodbye, as when a machine is lost. */
  kill(): void {
    this.expected = true;
    this.signal('SIGKILL');
  }

  /**
   * Sends a signal, for example SIGSTOP. A process that was not started has no id that a signal may go to.
   */
  signal(name: NodeJS.Signals): void {
    if (this.pid !== undefined) this.process?.kill(name);
  }

  /** Sends SIGINT (a PS would be drained first at SIGTERM), and SIGKILL if that is not enough. */
  async stop(): Promise<void> {
    this.expected = true;
    if (!this.alive) return;
    this.signal('SIGINT');
    const timer = setTimeout(() => this.signal('SIGKILL'), STOP_MS);
    await this.exited;
    clearTimeout(timer);
  }
}
