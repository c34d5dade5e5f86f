/**
 * Processes of this machine for an autoscaler that is a process of its own. They outlive it: a PS that ended
 * with it would take its shards along. PS end when the job has emptied them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { flagNames, withoutFlags } from '../../common/arguments.js';
import { KintsugiError } from '../../common/errors.js';
import type { Client } from '../../library/client/client.js';
import { monotonicMs } from '../../net/log.js';
import { CLI_PATH } from './child.js';
import type { Crew } from './provider.js';

export interface CrewOptions {
  client: Client;
  /** Flags by which processes reach the job, and further flags of each PS and each worker. */
  reach: readonly string[];
  psFlags: readonly string[];
  /** Undefined: no worker can be started here. */
  workerFlags: readonly string[] | undefined;
  /** Names of the workers that the job has, whoever started them. */
  known(): readonly string[];
}

/** A new PS has joined within this time, or the decision has failed. */
const JOIN_MS = 60_000;
const POLL_MS = 200;
/** A worker that was told to end and has not after this time is killed. */
const END_MS = 10_000;

export class MachineCrew implements Crew {
  private readonly own = new Map<string, ChildProcess>();
  private started = 0;

  constructor(private readonly options: CrewOptions) {}

  private start(role: 'ps' | 'worker', flags: readonly string[]): { name: string; child: ChildProcess } {
    const name = `${role}-by-${process.pid}-${this.started++}`;
    // A flag is given once: those of the user take the place of equal ones.
    const reach = withoutFlags(this.options.reach, flagNames(flags));
    const args = [CLI_PATH, role, ...reach, '--name', name, ...flags];
    const child = spawn(process.execPath, args, { detached: true, stdio: 'ignore' });
    child.on('error', () => {});
    child.unref();
    return { name, child };
  }

  async startPs(): Promise<void> {
    const { client, psFlags } = this.options;
    const { name, child } = this.start('ps', psFlags);
    for (const from = monotonicMs(); monotonicMs() - from < JOIN_MS; ) {
      if ((await client.status()).nodes.some((node) => node.name === name && node.alive)) return;
      if (child.exitCode !== null)
        throw new KintsugiError(
          'INTERNAL',
          `${name} ended with exit code ${child.exitCode} before it joined`,
        );
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    throw new KintsugiError('TIMEOUT', `${name} has not joined after ${JOIN_MS / 1000} s`);
  }

  workers(): readonly string[] {
    const others = this.options.known().filter((name) => !this.own.has(name));
    return [...others, ...this.own.keys()];
  }

  startWorker(): void {
    const { workerFlags } = this.options;
    if (!workerFlags)
      throw new KintsugiError('BAD_ARGUMENT', 'no worker can be started without --worker-flags');
    const { name, child } = this.start('worker', workerFlags);
    this.own.set(name, child);
    child.on('exit', () => this.own.delete(name));
  }

  endWorker(name: string): void {
    const child = this.own.get(name);
    if (!child) throw new KintsugiError('BAD_ARGUMENT', `${name} was not started here`);
    this.own.delete(name);
    child.kill('SIGTERM');
    setTimeout(() => child.exitCode === null && child.kill('SIGKILL'), END_MS).unref();
  }
}
