/** The operator as a client of one job: it reads what the job reports, and asks it for changes. */

import { describeWithCode, KintsugiError } from '../../common/errors.js';
import { sumOf } from '../../common/statistics.js';
import { type Client, connect } from '../../library/client/client.js';
import { Dataset } from '../../library/client/dataset.js';
import type { JobSnapshot } from '../../library/client/observe.js';
import { setSavePlan } from '../../library/tools/checkpoints.js';
import { beginChange, rebalance, statusIn } from '../../library/tools/scaling.js';
import type { ClientTls } from '../../net/transport/index.js';
import { goodputOf } from '../../protocol/goodput.js';
import type { JobStatus } from '../../protocol/messages.js';
import type { DatasetStatus } from '../../protocol/samples.js';
import { CHECKPOINT_PLAN } from '../../protocol/saving.js';
import type { DecisionRecord } from '../autoscale/autoscaler.js';
import { tellDecision } from '../autoscale/told.js';
import { gather } from './gathered.js';
import type {
  Action,
  JobReport,
  ObservedCheckpoint,
  ObservedEnd,
  ObservedRequest,
  Planned,
  PlanReport,
} from './reconcile/observed.js';
import { sameValue } from './reconcile/same.js';

const LOOK_MS = 1000;
/** Milliseconds between two looks while a change that was asked for is under way. */
const LOOK_SOON_MS = 300;
/** A rebalance without progress for so long is taken back. */
const REBALANCE_MS = 60_000;
/** Requests that are remembered. */
const KEEP = 64;
/** Errors after which the job has not heard the request. */
const UNHEARD: ReadonlySet<string> = new Set(['UNREACHABLE', 'CLOSED', 'DEPOSED', 'SESSION_EXPIRED']);
/** The pace of training is measured so often. */
const PACE_MS = 15_000;
const CONNECT_MS = 5000;
/** A scheduler that does not answer for so long is away. */
const ANSWER_MS = 3000;

type LinkRequest = Omit<Extract<Action, { kind: 'ask' }>, 'kind'>;

type ObservationPace = Pick<
  NonNullable<JobReport['progress']>,
  'samplesPerSecond' | 'estimatedRemainingSeconds' | 'goodput'
>;

export interface JobLinkOptions {
  /** host:port of the scheduler. */
  address: string;
  token: string;
  /** Present: the job speaks TLS. */
  tls?: ClientTls | undefined;
  /** Name of the data set of the workers. */
  run: string;
  /** Called when the report, or the state of a request, is another. */
  onChange(): void;
}

interface MeasuredJob {
  at: number;
  samples: number;
}

function paceOf(before: MeasuredJob, now: MeasuredJob, dataset: DatasetStatus): ObservationPace {
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

function reportOf(status: JobStatus, progress: JobReport['progress']): JobReport {
  const plan = status.saving?.find(({ name }) => name === CHECKPOINT_PLAN);
  const { last, failure } = plan ?? {};
  return {
    plan: plan ? { url: plan.url, everySeconds: plan.everyMs / 1000, keep: plan.keep } : null,
    ...(failure
      ? { checkpointProblem: `checkpoint ${failure.number}: ${failure.code}: ${failure.message}` }
      : {}),
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

export class JobLink {
  report: JobReport | undefined;
  /** When the job answered last. Milliseconds since 1970. */
  heardAt: number | undefined;
  /** True: the job was asked once, and has answered or not. */
  looked = false;
  saved: ObservedCheckpoint | undefined;
  planned: Planned | undefined;
  told: ObservedEnd | undefined;
  private measured: MeasuredJob | undefined;
  private pace: ObservationPace | undefined;
  private readonly all = new Map<string, ObservedRequest>();
  private client: Client | undefined;
  private timer: NodeJS.Timeout | undefined;
  private closed = false;
  private looking: Promise<void> | undefined;

  constructor(readonly options: JobLinkOptions) {
    this.next(0);
  }

  /** The newest requests. */
  get asked(): ObservedRequest[] {
    return [...this.all.values()];
  }

  /** Asks for a change; its state is in `asked`. A change that is under way is not asked for again. */
  ask({ key, change, timeoutMs }: LinkRequest): void {
    if (!this.client || this.all.get(key)?.underWay) return;
    this.all.delete(key);
    this.all.set(key, { key, at: Date.now(), underWay: true });
    for (const old of [...this.all.keys()].slice(0, -KEEP)) this.all.delete(old);
    beginChange(this.client, change, timeoutMs).then(
      (id) => {
        this.all.set(key, { key, at: Date.now(), underWay: true, id });
        this.changed();
      },
      (error: unknown) => {
        const unheard = error instanceof KintsugiError && UNHEARD.has(error.code);
        this.all.set(key, {
          ...{ key, at: Date.now(), underWay: false, problem: describeWithCode(error) },
          ...(unheard ? { unheard } : {}),
        });
        this.changed();
      },
    );
  }

  /** Asks for a checkpoint; its state is in `saved`. */
  save(generation: number): void {
    if (!this.client || this.saved?.underWay) return;
    const told = (more: { number?: number; problem?: string }): void => {
      this.saved = { generation, at: Date.now(), underWay: false, ...more };
      this.changed();
    };
    this.saved = { generation, at: Date.now(), underWay: true };
    this.client.checkpoint().then(
      ({ number }) => told({ number }),
      (error: unknown) => told({ problem: describeWithCode(error) }),
    );
  }

  /** Asks what came of the job, once; the state of that is in `told`. */
  gather(withDigest: boolean): void {
    const { client } = this;
    if (this.told) return;
    const end = (more: Omit<ObservedEnd, 'at' | 'underWay'>): void => {
      this.told = { at: Date.now(), underWay: false, ...more };
      this.changed();
    };
    this.told = { at: Date.now(), underWay: true };
    if (!client) return end({ problem: 'the job does not answer' });
    gather(client, this.options.run, withDigest).then(
      (findings) => end({ findings }),
      (error: unknown) => end({ problem: describeWithCode(error) }),
    );
  }

  /** Asks for another plan of checkpoints; its state is in `planned`. Rate and barrier stay as they are. */
  tellPlan(generation: number, plan: PlanReport | null): void {
    const { client } = this;
    if (!client || this.planned?.underWay) return;
    const told = (more: { problem?: string }): void => {
      this.planned = { generation, at: Date.now(), underWay: false, ...more };
      this.changed();
    };
    this.planned = { generation, at: Date.now(), underWay: true };
    changePlan(client, plan).then(
      // The report has the old plan until the job is asked again.
      () => this.look().then(() => told({})),
      (error: unknown) => told({ problem: describeWithCode(error) }),
    );
  }

  private changed(): void {
    if (!this.closed) this.options.onChange();
  }

  /** Notes which of these requests have ended, by the changes that the job reports. True: some have. */
  private settle({ changes }: JobReport, running: readonly ObservedRequest[]): boolean {
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

  /** Measures the pace of training, but seldom: each difference is written into the status. */
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
    // Requests that are made from here on may be younger than the answer.
    const running = this.asked.filter(({ underWay, id }) => underWay && id !== undefined);
    try {
      const { address, token, tls, run } = this.options;
      const how = { token, tls, waitForJob: false, connectTimeoutMs: CONNECT_MS };
      this.client ??= await connect(address, how);
      const status = await statusIn(this.client, ANSWER_MS);
      const dataset = await Dataset.status(this.client, run, ANSWER_MS);
      await this.measure(this.client, dataset);
      const progress = dataset && {
        percentage: dataset.ranges > 0 ? Math.floor((100 * dataset.finished) / dataset.ranges) : 0,
        ...{ redone: dataset.redone, complete: dataset.complete, ...this.pace },
      };
      report = reportOf(status, progress);
      this.heardAt = Date.now();
    } catch (error) {
      // A client dials a scheduler that is away by itself. After any other error a new client begins a new
      // session.
      if (!(error instanceof KintsugiError && error.code === 'UNREACHABLE')) {
        await this.client?.close();
        this.client = undefined;
      }
    }
    const ended = report !== undefined && this.settle(report, running);
    const first = !this.looked;
    this.looked = true;
    if (this.closed || (!first && !ended && sameValue(report, this.report))) return;
    this.report = report;
    this.options.onChange();
  }
}
