/**
 * Processes of an attack, forked from one program of this folder. They end when this process does. Stopped
 * ones are killed then, because they cannot know.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../../src/common/errors.js';
import { type Attack, type AttackOutcome, outcomesOf } from './attack.js';

/** A process of a crowd tells that it is connected, that all of its requests have left it, how it went. */
export type CrowdReport = 'ready' | 'asked' | { outcome: AttackOutcome };

/** A process that was told to end and has not after this time is killed. */
const END_MS = 15_000;
/** A process that is not ready after this time makes the attack fail. */
const READY_MS = 240_000;

interface CrowdMember {
  process: ChildProcess;
  told: Map<string, () => void>;
  outcome: AttackOutcome | undefined;
  gone: Promise<void>;
}

export class Crowd {
  private readonly members: CrowdMember[] = [];
  private readonly emergency = () => this.signal('SIGKILL');

  constructor(private readonly program: 'clients' | 'sockets' | 'program') {
    process.on('exit', this.emergency);
  }

  pids(): number[] {
    return this.members.flatMap(({ process: { pid } }) => (pid === undefined ? [] : [pid]));
  }

  /** Starts a process for each of these options. Resolves when all say so. @throws TIMEOUT */
  async start(all: readonly object[], until: 'ready' | 'asked'): Promise<void> {
    const path = fileURLToPath(new URL(`./${this.program}.js`, import.meta.url));
    const fresh = all.map((options) => this.fork(path, options));
    await Promise.all(fresh.map((member) => toldBy(member, until)));
  }

  private fork(path: string, options: object): CrowdMember {
    const child = fork(path, [JSON.stringify(options)], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    const member: CrowdMember = { process: child, told: new Map(), outcome: undefined, gone };
    child.on('message', (report: CrowdReport) => {
      if (typeof report === 'string') member.told.get(report)?.();
      else member.outcome = report.outcome;
    });
    child.on('error', () => {});
    this.members.push(member);
    return member;
  }

  signal(name: NodeJS.Signals): void {
    for (const { process: child } of this.members) child.kill(name);
  }

  /** Tells all to end, and waits until they have said how it went; then they are gone. */
  async end(): Promise<AttackOutcome> {
    for (const { process: child } of this.members) if (child.connected) child.send('stop');
    const late = setTimeout(() => this.signal('SIGKILL'), END_MS);
    await Promise.all(this.members.map(({ gone }) => gone));
    clearTimeout(late);
    return this.over();
  }

  async kill(): Promise<AttackOutcome> {
    this.signal('SIGKILL');
    await Promise.all(this.members.map(({ gone }) => gone));
    return this.over();
  }

  private over(): AttackOutcome {
    process.off('exit', this.emergency);
    return outcomesOf(this.members.flatMap(({ outcome }) => outcome ?? []));
  }
}

/** An attack whose processes are a crowd, and which kills nothing of the job. */
export const byCrowd = (
  crowd: Crowd,
  attack: Pick<Attack, 'name' | 'prepare' | 'start' | 'stop'> & Partial<Attack>,
): Attack => ({
  kills: 0,
  pids: () => crowd.pids(),
  abort: () => crowd.signal('SIGKILL'),
  watched: () => new Map(),
  ...attack,
});

async function toldBy({ told, gone }: CrowdMember, what: string): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const failed = (code: 'TIMEOUT' | 'INTERNAL', text: string) => new KintsugiError(code, text);
  try {
    await new Promise<void>((resolve, reject) => {
      told.set(what, resolve);
      timer = setTimeout(() => reject(failed('TIMEOUT', `a process of an attack is not ${what}`)), READY_MS);
      void gone.then(() => reject(failed('INTERNAL', `a process of an attack ended before it was ${what}`)));
    });
  } finally {
    clearTimeout(timer);
  }
}
