/** `kintsugi local --autoscale`: an autoscaler beside the job, and what the report says of it. */

import type { Client } from '../../library/client/client.js';
import { Observer } from '../../library/observe/observer.js';
import { monotonicMs } from '../../net/log.js';
import { Autoscaler, type DecisionRecord, decisionText } from '../autoscale/autoscaler.js';
import { type Bounds, policyOf } from '../autoscale/bounds.js';
import type { AutoscalePolicy } from '../autoscale/decide/policy.js';
import { tellDecision } from '../autoscale/told.js';
import { type Crew, LocalProvider } from './provider.js';
import { timeText } from './text.js';

/** Times of a local run: processes are there in seconds, and the run is over in minutes. */
const LOCAL_TIMES: Readonly<Partial<AutoscalePolicy>> = {
  ...{ settle: 10, window: 15, slopeWindow: 60, remember: 600, idleFor: 60, retry: 60 },
  ...{ stragglerWindow: 6, stragglerWindows: 3, budgetPerHour: 200 },
  // All processes share what this machine has, so nothing is fast.
  ...{ startup: 5, moveBytes: 8 * 2 ** 20 },
};
const LOOK_MS = 1000;

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
  /** Seconds until it was carried out; null when it was not. */
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
      policy: policyOf(this.bounds, LOCAL_TIMES),
      provider: new LocalProvider(client, crew),
      onDecision: (record) => {
        tellDecision(client, record);
        tell(`autoscaler: ${decisionText(record.decision)}`);
      },
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

  /** `start`: when training began, in milliseconds of the monotonic clock. */
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
