/** The operator as a client of one job: what the job says, and what it is asked for. */
import type { DecisionRecord } from '../autoscale/autoscaler.js';
import { tellDecision } from '../autoscale/told.js';
import { type Client, connect } from '../client/client.js';
import { Dataset } from '../client/dataset.js';
import type { JobSnapshot } from '../client/observe.js';
import { describe, KintsugiError } from '../errors.js';
import { goodputOf } from '../protocol/goodput.js';
import type { JobStatus } from '../protocol/messages.js';
import type { DatasetStatus } from '../protocol/samples.js';
import { CHECKPOINT_PLAN } from '../protocol/saving.js';
import { sumOf } from '../statistics.js';
import { setSavePlan } from '../tools/checkpoints.js';
import { beginChange, rebalance, statusIn } from '../tools/scaling.js';
import type { ClientTls } from '../transport/index.js';
import type { Action, Asked, JobReport, Planned, PlanReport, Saved } from './reconcile/observed.js';
import { sameValue } from './reconcile/same.js';

const LOOK_MS = 1000;
/** While a change is under way that was asked for. */
const LOOK_SOON_MS = 300;
/** Without progress for so long it is taken back. */
const REBALANCE_MS = 60_000;
/** Changes that were asked for and are remembered. */
const KEEP = 64;
/** Nobody has heard what was asked for. */
const UNHEARD: ReadonlySet<string> = new Set(['UNREACHABLE', 'CLOSED', 'DEPOSED', 'SESSION_EXPIRED']);
/** The pace of training is measured so often. */
const PACE_MS = 15_000;
const CONNECT_MS = 5000;
/** A scheduler that does not answer for so long is away. */
const ANSWER_MS = 3000;

type Ask = Omit<Extract<Action, { kind: 'ask' }>, 'kind'>;

type Pace = Pick<
  NonNullable<JobReport['progress']>,
  'samplesPerSecond' | 'estimatedRemainingSeconds' | 'goodput'
>;

export interface LinkOptions {
  /** host:port of the scheduler. */
  address: string;
  token: string;
  /** The job speaks TLS. */
  tls?: ClientTls | undefined;
  /** Name of the data set of the workers. */
  run: string;
  /** The report, or how a change went, is another. */
  onChange(): void;
}

interface Measured {
  at: number;
  samples: number;
}

function paceOf(before: Measured, now: Measured, dataset: DatasetStatus): Pace {
  const perSecond = (1000 * (now.samples - before.samples)) / (now.at - before.at);
  const done = sumOf(dataset.samples, (each) => each);
  if (!(perSecond > 0) || dataset.finished === 0) return { samplesPerSecond: 0 };
  const left = ((dataset.ranges - dataset.finished) * done) / dataset.finished;
  return {
    samplesPerSecond: Math.round(perSecond),
    estimatedRemainingSeconds: Math.round(left / perSecond),
  };
}

async function changePlan(client: Client, plan: PlanReport | null): Promise<void> {
  if (!plan) return setSavePlan(client, CHECKPOINT_PLAN);
  const { saving = [] } = await statusIn(client, ANSWER_MS);
  const known = saving.find(({ name }) => name === CHECKPOINT_PLAN);
  const { url, everySeconds, keep } = plan;
  return setSavePlan(client, CHECKPOINT_PLAN, {
    ...{ url, everyMs: everySeconds * 1000, keep, rate: known?.rate ?? 0, kind: 'full job' },
    ...(known?.barrier ? { barrier: true as const } : {}),
  });
}

function describeProblem(error: unknown): string {
  return `${error instanceof KintsugiError ? `${error.code}: ` : ''}${describe(error)}`;
}

function reportOf(status: JobStatus, progress: JobReport['progress']): JobReport {
  const plan = status.saving?.find(({ name }) => name === CHECKPOINT_PLAN);
  const last = plan?.last;
  return {
    plan: plan ? { url: plan.url, everySeconds: plan.everyMs / 1000, keep: plan.keep } : null,
    redundancy: status.redundancy,
    reasons: status.reasons,
    nodes: status.nodes.map(({ name, alive }) => ({ name, alive })),
    changing: status.scaling.changes.some(({ state }) => state === 'running'),
    changes: status.scaling.changes.map((change) => {
      const { id, kind, from, to, state, reason, leaving, shardsMoved, bytesMoved } = change;
      const shardsLeft = change.shardsMoving + change.shardsLeft;
      return { id, kind, from, to, state, reason, leaving, shardsMoved, bytesMoved, shardsLeft };
    }),
    ...(progress ? { progress } : {}),
    ...(last ? { lastCheckpoint: { number: last.number, rows: last.rows, bytes: last.bytes } } : {}),
  };
}

export class Link {
  report: JobReport | undefined;
  saved: Saved | undefined;
  planned: Planned | undefined;
  private measured: Measured | undefined;
  private pace: Pace | undefined;
  private readonly all = new Map<string, Asked>();
  private client: Client | undefined;
  private timer: NodeJS.Timeout | undefined;
  private closed = false;
  private looking: Promise<void> | undefined;

  constructor(readonly options: LinkOptions) {
    this.next(0);
  }

  /** The newest ones. */
  get asked(): Asked[] {
    return [...this.all.values()];
  }

  /** How it goes is in `asked`. What is under way is not asked for again. */
  ask({ key, change, timeoutMs }: Ask): void {
    if (!this.client || this.all.get(key)?.underWay) return;
    this.all.delete(key);
    this.all.set(key, { key, at: Date.now(), underWay: true });
    for (const old of [...this.all.keys()].slice(0, -KEEP)) this.all.delete(old);
    beginChange(this.client, change, timeoutMs).then(
      (id) => {
        this.all.set(key, { key, at: Date.now(), underWay: true, id });
        if (!this.closed) this.options.onChange();
      },
      (error: unknown) => {
        const unheard = error instanceof KintsugiError && UNHEARD.has(error.code);
        this.all.set(key, {
          ...{ key, at: Date.now(), underWay: false, problem: describeProblem(error) },
          ...(unheard ? { unheard } : {}),
        });
        if (!this.closed) this.options.onChange();
      },
    );
  }

  /** Asks for a checkpoint; how it goes is in `saved`. */
  save(generation: number): void {
    if (!this.client || this.saved?.underWay) return;
    const told = (more: { number?: number; problem?: string }): void => {
      this.saved = { generation, at: Date.now(), underWay: false, ...more };
      if (!this.closed) this.options.onChange();
    };
    this.saved = { generation, at: Date.now(), underWay: true };
    this.client.checkpoint().then(
      ({ number }) => told({ number }),
      (error: unknown) => told({ problem: describeProblem(error) }),
    );
  }

  /** Asks for another plan of checkpoints; how it goes is in `planned`. Rate and barrier stay as they are. */
  plan(generation: number, plan: PlanReport | null): void {
    const { client } = this;
    if (!client || this.planned?.underWay) return;
    const told = (more: { problem?: string }): void => {
      this.planned = { generation, at: Date.now(), underWay: false, ...more };
      if (!this.closed) this.options.onChange();
    };
    this.planned = { generation, at: Date.now(), underWay: true };
    changePlan(client, plan).then(
      // What the job says about it is older until it is asked again.
      () => this.look().then(() => told({})),
      (error: unknown) => told({ problem: describeProblem(error) }),
    );
  }

  /** Whether some of these have ended, by what the job tells of its changes. */
  private settle({ changes }: JobReport, running: readonly Asked[]): boolean {
    let ended = false;
    for (const asked of running) {
      const change = changes.find(({ id }) => id === asked.id);
      if (change?.state === 'running') continue;
      const problem = change?.state === 'cancelled' ? change.reason : undefined;
      const end = { ...asked, at: Date.now(), underWay: false };
      this.all.set(asked.key, problem === undefined ? end : { ...end, problem });
      ended = true;
    }
    return ended;
  }

  async observe(options: { shards?: boolean }): Promise<JobSnapshot> {
    return this.reached().observe(options);
  }

  async rebalance(): Promise<void> {
    await rebalance(this.reached(), { timeoutMs: REBALANCE_MS });
  }

  /** Tells the job what its autoscaler has decided. */
  tell(record: DecisionRecord): void {
    if (this.client) tellDecision(this.client, record);
  }

  private reached(): Client {
    if (this.client) return this.client;
    throw new KintsugiError('UNREACHABLE', 'the job does not answer');
  }

  async close(): Promise<void> {
    this.closed = true;
    clearTimeout(this.timer);
    await this.client?.close();
    await this.looking;
    await this.client?.close();
  }

  private next(ms: number): void {
    this.timer = setTimeout(() => {
      this.looking = this.look().finally(() => {
        const soon = this.asked.some(({ underWay }) => underWay);
        if (!this.closed) this.next(soon ? LOOK_SOON_MS : LOOK_MS);
      });
    }, ms);
    this.timer.unref();
  }

  /** Now and then, because whatever is different is written into the status. */
  private async measure(client: Client, dataset: DatasetStatus | undefined): Promise<void> {
    const at = performance.now();
    if (!dataset || (this.measured && at - this.measured.at < PACE_MS)) return;
    const seen = await client.observe({ timeoutMs: ANSWER_MS }).catch(() => undefined);
    if (!seen) return;
    const runs = seen.scheduler.runs.filter(({ run }) => run === this.options.run);
    const now = { at, samples: sumOf(runs, ({ samples }) => samples) };
    const before = this.measured;
    this.measured = now;
    this.pace = before && paceOf(before, now, dataset);
    const goodput = goodputOf(runs);
    if (goodput !== undefined) this.pace = { ...this.pace, goodput: Math.round(100 * goodput) };
  }

  private async look(): Promise<void> {
    let report: JobReport | undefined;
    // What is asked for from here on may be younger than the answer.
    const running = this.asked.filter(({ underWay, id }) => underWay && id !== undefined);
    try {
      const { address, token, tls, run } = this.options;
      const how = { token, tls, waitForJob: false, connectTimeoutMs: CONNECT_MS };
      this.client ??= await connect(address, how);
      const status = await statusIn(this.client, ANSWER_MS);
      const dataset = await Dataset.status(this.client, run);
      await this.measure(this.client, dataset);
      const progress = dataset && {
        percentage: dataset.ranges > 0 ? Math.floor((100 * dataset.finished) / dataset.ranges) : 0,
        ...{ redone: dataset.redone, complete: dataset.complete, ...this.pace },
      };
      report = reportOf(status, progress);
    } catch (error) {
      // A scheduler that is away is dialed again. A session that ended is begun anew.
      if (!(error instanceof KintsugiError && error.code === 'UNREACHABLE')) {
        await this.client?.close();
        this.client = undefined;
      }
    }
    const ended = report !== undefined && this.settle(report, running);
    if (this.closed || (!ended && sameValue(report, this.report))) return;
    this.report = report;
    this.options.onChange();
  }
}
