/**
 * Replicas of a run: processes that follow all shards, or half of them each, and are killed and stopped at
 * random times. They hold nothing that the job needs, so there is no bound on how many are away at once.
 */
import { Child } from '../../src/fleet/local/child.js';
import { seededRandom } from '../../src/fleet/local/kills.js';
import { monotonicMs } from '../../src/net/log.js';
import type { Machines } from '../common/machines.js';
import { pause } from './pause.js';
import type { Secrets } from './secrets.js';

/** Milliseconds between two faults of replicas, and for how long one is away. */
const FAULT_PAUSE_MS = [1000, 5000] as const;
const AWAY_MS = [200, 6000] as const;

export type ReplicaFault = 'killReplica' | 'stopReplica';

export interface ReplicasOptions {
  count: number;
  scheduler: string;
  seed: number;
  secrets: Secrets;
  /** Each is on one of its own; undefined: all are on this one. */
  machines: Machines | undefined;
  onLine(line: string): void;
  onFault(kind: ReplicaFault, name: string): void;
  onError(error: Error): void;
}

export class ChaosReplicas {
  readonly counts: Partial<Record<ReplicaFault, number>> = {};
  private readonly children: Child[] = [];
  private readonly places: { prefix: readonly string[]; listen: string }[] = [];
  private readonly away = new Map<number, Promise<void>>();
  private readonly random: () => number;
  private stopping = false;
  private readonly emergency = () => {
    for (const child of this.children) if (child.alive) child.kill();
  };

  constructor(private readonly options: ReplicasOptions) {
    this.random = seededRandom(options.seed);
    process.on('exit', this.emergency);
  }

  /** Resolves when all of them have all. */
  async start(): Promise<void> {
    const all = Array.from({ length: this.options.count }, (_, index) => {
      this.places.push(this.place());
      return this.launch(index);
    });
    await Promise.all(all.map((child) => child.event('replica.ready')));
  }

  private place(): { prefix: readonly string[]; listen: string } {
    const { machines } = this.options;
    if (!machines) return { prefix: [], listen: '127.0.0.1:0' };
    const machine = machines.add();
    return { prefix: machines.on(machine), listen: `${machine}:0` };
  }

  /** The first one has all shards, so that each has one that holds it; of the others two share them. */
  private launch(index: number): Child {
    const { scheduler, secrets, onLine, onError } = this.options;
    const { prefix, listen } = this.places[index]!;
    const name = `replica-${index}`;
    const share = index === 0 ? '1/1' : `${1 + (index % 2)}/2`;
    const args = ['replica', '--scheduler', scheduler, '--connect-timeout', '60s', '--listen', listen];
    args.push('--name', name, '--share', share, '--max-lag', '0s');
    const { tls, token } = secrets;
    if (tls) args.push('--tls-cert', tls.certFile, '--tls-key', tls.keyFile, '--tls-ca', tls.certFile);
    const env = { KINTSUGI_TOKEN: token, KINTSUGI_NODE_TOKEN: '' };
    const child = new Child({ name, args, env, prefix, onEvent: (_, line) => onLine(line) });
    this.children[index] = child;
    void child.exited.then((exit) => {
      if (!child.expected && !this.stopping) onError(child.deathOf(exit));
    });
    return child;
  }

  /** Faults until `until` (monotonic milliseconds) or an abort; then all are up again. */
  async run(until: number, signal: AbortSignal): Promise<void> {
    while (monotonicMs() < until && !signal.aborted) {
      await pause(this.between(...FAULT_PAUSE_MS));
      const index = this.random() % this.children.length;
      if (!this.away.has(index)) this.strike(index);
    }
    await Promise.all(this.away.values());
  }

  private between(least: number, most: number): number {
    return least + (this.random() % (most - least));
  }

  private strike(index: number): void {
    const child = this.children[index]!;
    const kind = this.random() % 2 === 0 ? 'killReplica' : 'stopReplica';
    this.counts[kind] = (this.counts[kind] ?? 0) + 1;
    this.options.onFault(kind, child.name);
    if (kind === 'killReplica') child.kill();
    else child.signal('SIGSTOP');
    const back = async () => {
      await pause(this.between(...AWAY_MS));
      if (kind === 'stopReplica') child.signal('SIGCONT');
      else if (!this.stopping) await this.launch(index).event('replica.following');
    };
    const done = back()
      .catch((error: Error) => this.options.onError(error))
      .finally(() => this.away.delete(index));
    this.away.set(index, done);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    for (const child of this.children) if (child.alive) child.signal('SIGCONT');
    await Promise.all(this.children.map((child) => child.stop()));
    process.off('exit', this.emergency);
  }
}
