/**
 * `kintsugi local --autoscale`: an autoscaler beside the job, and the provider that starts and ends its
 * processes.
 */

import { Autoscaler, type DecisionRecord, decisionText } from '../autoscale/autoscaler.js';
import type { Bounds } from '../autoscale/bounds.js';
import { type Policy, policyWith } from '../autoscale/decide/policy.js';
import type { Provider } from '../autoscale/provider.js';
import type { Client } from '../client/client.js';
import { KintsugiError } from '../errors.js';
import { Observer } from '../observe/observer.js';
import { monotonicMs } from '../runtime/log.js';
import { rebalance, scale } from '../tools/scaling.js';
import { timeText } from './text.js';

/** Processes of this machine are there in seconds, and a run is over in minutes. */
export const LOCAL_TIMES: Readonly<Partial<Policy>> = {
  ...{ settle: 10, window: 15, slopeWindow: 60, remember: 600, idleFor: 60, retry: 60 },
  ...{ stragglerWindow: 6, stragglerWindows: 3, budgetPerHour: 200 },
  // All processes share what this machine has, so nothing is fast.
  ...{ startup: 5, moveBytes: 8 * 2 ** 20 },
};
const LOOK_MS = 1000;
/** Without progress for so long a change of PS is taken back. */
const CHANGE_MS = 60_000;

/** The processes of a run. */
export interface Crew {
  /** Starts one more PS; resolves when it has joined. */
  startPs(): Promise<void>;
  /** Names of those that train or are about to, in the order of their starts. */
  workers(): readonly string[];
  startWorker(): void;
  /** Has it end after its batch; it is killed where that takes long. */
  endWorker(name: string): void;
}

export class LocalProvider implements Provider {
  constructor(
    private readonly client: Client,
    private readonly crew: Crew,
  ) {}

  get workers(): number {
    return this.crew.workers().length;
  }

  async scalePs(count: number): Promise<void> {
    const { serving } = (await this.client.status()).scaling;
    const changing = scale(this.client, count, { timeoutMs: CHANGE_MS });
    changing.catch(() => {});
    await Promise.all(Array.from({ length: Math.max(0, count - serving) }, () => this.crew.startPs()));
    await changing;
  }

  async scaleWorkers(count: number): Promise<void> {
    const now = this.crew.workers();
    for (let missing = count - now.length; missing > 0; missing--) this.crew.startWorker();
    for (const name of now.slice(count)) this.crew.endWorker(name);
  }

  async replaceWorker(name: string): Promise<void> {
    if (!this.crew.workers().includes(name))
      throw new KintsugiError('BAD_ARGUMENT', `there is no worker "${name}"`);
    this.crew.startWorker();
    this.crew.endWorker(name);
  }

  async rebalance(): Promise<void> {
    await rebalance(this.client, { timeoutMs: CHANGE_MS });
  }
}

/** A decision in the report of a run. */
export interface AutoscaleReport {
  /** Seconds since training began. */
  at: number;
  decision: string;
  kind: string;
  from: number | null;
  to: number | null;
  reason: string;
  numbers: Record<string, number | null>;
  /** Until it was carried out; null when it was not. */
  seconds: number | null;
  problem: string | null;
}

export class LocalAutoscale {
  private autoscaler: Autoscaler | undefined;
  private observer: Observer | undefined;

  constructor(private readonly bounds: Bounds) {}

  start(client: Client, crew: Crew, tell: (text: string) => void): void {
    this.observer = new Observer(client, { intervalMs: LOOK_MS });
    this.autoscaler = new Autoscaler({
      observer: this.observer,
      policy: policyWith({ ...LOCAL_TIMES, ...this.bounds }),
      provider: new LocalProvider(client, crew),
      onDecision: ({ decision }) => tell(`autoscaler: ${decisionText(decision)}`),
      onDone: ({ decision, tookMs, problem }) => {
        if (problem !== undefined) tell(`autoscaler: no ${decision.kind}: ${problem}`);
        else if (decision.kind === 'ps')
          tell(`autoscaler: ${decision.to} PS serve after ${timeText(tookMs ?? 0)}`);
      },
    });
    this.autoscaler.start();
    this.observer.start();
  }

  /** Resolves when nothing is under way. */
  async stop(): Promise<void> {
    await this.observer?.stop();
    await this.autoscaler?.stop();
  }

  /** `start`: of training, on the monotonic clock. */
  report(start: number | undefined): AutoscaleReport[] {
    return (this.autoscaler?.records ?? []).map((record) => reportOf(record, start ?? monotonicMs()));
  }
}

function reportOf({ at, decision, tookMs, problem }: DecisionRecord, start: number): AutoscaleReport {
  const { kind, reason, numbers } = decision;
  const counted = kind === 'ps' || kind === 'workers';
  return {
    at: Math.round(at - start) / 1000,
    ...{ decision: decisionText(decision), kind, reason },
    from: counted ? decision.from : null,
    to: counted ? decision.to : null,
    numbers: Object.fromEntries(
      Object.entries(numbers).map(([name, value]) => [name, Number.isFinite(value) ? value : null]),
    ),
    seconds: tookMs === undefined ? null : tookMs / 1000,
    problem: problem ?? null,
  };
}
