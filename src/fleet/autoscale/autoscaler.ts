/**
 * An autoscaler: it looks at a job, decides, and has a provider carry the decision out. One decision is under
 * way at a time. What was seen is not kept durably: a new process sees the same again within minutes.
 */

import { describe } from '../../common/errors.js';
import type { JobSnapshot } from '../../library/client/observe.js';
import type { Observer } from '../../library/observe/observer.js';
import { monotonicMs } from '../../net/log.js';
import { decide } from './decide/decide.js';
import type { Decision, Observation, TakenTime } from './decide/observation.js';
import type { AutoscalePolicy } from './decide/policy.js';
import { observationOf } from './observed.js';
import type { Provider } from './provider.js';

/** A decision, and what became of it. */
export interface DecisionRecord {
  /** Milliseconds on the clock of snapshots. */
  at: number;
  decision: Decision;
  /** PS and workers of the job at the look that led to the decision. */
  ps: number;
  workers: number;
  /** Milliseconds until it was carried out; undefined: it is under way, or was only said. */
  tookMs?: number;
  /** Why it was not carried out. */
  problem?: string;
}

export interface AutoscalerOptions {
  observer: Pick<Observer, 'on'>;
  policy: AutoscalePolicy;
  /** Undefined: decisions are reported and not carried out. */
  provider: Provider | undefined;
  /** Called with each decision, before it is carried out. */
  onDecision?: (record: DecisionRecord) => void;
  /** Called when a decision was carried out or has failed. */
  onDone?: (record: DecisionRecord) => void;
}

export class Autoscaler {
  readonly records: DecisionRecord[] = [];
  private seen: Observation[] = [];
  private taken: TakenTime[] = [];
  private underWay: Promise<void> | undefined;
  private off: (() => void) | undefined;
  /**
   * Decisions wait until this time, also for memory: one has failed, or is not carried out. Seconds on the
   * clock of observations.
   */
  private waitUntil = Number.NEGATIVE_INFINITY;

  constructor(private readonly options: AutoscalerOptions) {}

  start(): void {
    const { provider } = this.options;
    // The next look sees what cannot be finished.
    this.underWay = provider
      ?.takeOver?.()
      .catch(() => {})
      .finally(() => {
        this.underWay = undefined;
      });
    this.off ??= this.options.observer.on((snapshot) => this.look(snapshot));
  }

  /** Resolves when nothing is under way. */
  async stop(): Promise<void> {
    this.off?.();
    this.off = undefined;
    await this.underWay;
  }

  private look(snapshot: JobSnapshot): void {
    const { policy, provider } = this.options;
    const now = observationOf(snapshot, provider?.workers ?? snapshot.workers.length);
    if (!now) return;
    this.seen.push(now);
    const oldest = now.at - policy.remember;
    this.seen = this.seen.filter(({ at }) => at >= oldest);
    this.taken = this.taken.filter(({ at }) => at >= oldest);
    if (this.underWay || provider?.busy || now.at < this.waitUntil) return;
    for (const decision of decide(this.history, policy)) this.take(now, decision, snapshot.at);
  }

  private get history() {
    return { seen: this.seen, taken: this.taken };
  }

  private take(now: Observation, decision: Decision, at: number): void {
    const { provider, policy } = this.options;
    const record: DecisionRecord = { at, decision, ps: now.ps.length, workers: now.workers.length };
    this.taken.push({ at: now.at, decision });
    this.records.push(record);
    this.options.onDecision?.(record);
    if (!provider) {
      // Without a provider the job stays as it is, so every look would decide the same again.
      this.waitUntil = now.at + policy.settle;
      return;
    }
    const began = monotonicMs();
    this.underWay = carryOut(provider, decision)
      .then(
        () => {
          record.tookMs = Math.round(monotonicMs() - began);
        },
        (error: unknown) => {
          record.problem = describe(error);
          this.waitUntil = now.at + (monotonicMs() - began) / 1000 + policy.settle;
        },
      )
      .finally(() => {
        this.underWay = undefined;
        this.options.onDone?.(record);
      });
  }
}

function carryOut(provider: Provider, decision: Decision): Promise<void> {
  switch (decision.kind) {
    case 'ps':
      return provider.scalePs(decision.to);
    case 'workers':
      return provider.scaleWorkers(decision.to);
    case 'replace':
      return provider.replaceWorker(decision.name);
    case 'rebalance':
      return provider.rebalance();
  }
}

const plain = (value: number): string =>
  Math.abs(value) >= 100 ? value.toFixed(0) : `${Number(value.toPrecision(3))}`;

/** A decision in one line for a person: what is done, why, and by which numbers. */
export function decisionText({ reason, numbers, ...decision }: Decision): string {
  const what =
    decision.kind === 'replace'
      ? `replace ${decision.name}`
      : decision.kind === 'rebalance'
        ? 'rebalance'
        : `${decision.from} to ${decision.to} ${decision.kind === 'ps' ? 'PS' : 'workers'}`;
  const facts = Object.entries(numbers)
    .filter(([, value]) => Number.isFinite(value))
    .map(([name, value]) => `${name} ${plain(value)}`);
  return `${what}: ${reason}${facts.length > 0 ? ` (${facts.join(', ')})` : ''}`;
}
