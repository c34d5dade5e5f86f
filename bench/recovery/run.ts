/**
 * One mode at one size: a cluster of real processes, a table that is filled, training, SIGKILL of one PS, and
 * then whatever the mode does about it. With a code the cluster mends itself and training goes on; with
 * checkpoints a new cluster takes the place of the old one, is filled from disk, and trains again what the
 * checkpoint had not seen.
 */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KintsugiError } from '../../src/common/errors.js';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { Processes, psName } from '../../src/fleet/local/processes.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { detectionOf, type KillRecord } from '../../src/fleet/local/report.js';
import { type Client, connect, type PushCounts } from '../../src/library/client/client.js';
import { internalsOf } from '../../src/library/client/connected.js';
import { rowCounts } from '../../src/library/client/scan.js';
import { checkPushes } from '../../src/library/tools/audit.js';
import { checkParity } from '../../src/library/tools/parity.js';
import { monotonicMs } from '../../src/net/log.js';
import type { ClientReport } from '../common/training/child.js';
import { BenchClient, type ClientDone } from '../common/training/client.js';
import { localOptions } from '../common/training/cluster.js';
import { TABLE } from '../common/training/keys.js';
import type { TrainingMode } from '../common/training/modes.js';
import { type MeasuredRecovery, measure, type TrainedStep } from './measure.js';
import type { RecoveryOptions } from './options.js';

const CONNECT_MS = 60_000;
const WARM_UP_MS = 2000;
/** Requests have ended, and the nodes know it. */
const IDLE_MS = 1000;
/** The benchmark learns for this time how fast training can be, and then lets the pace settle. */
const LEARN_MS = 5000;
const SETTLE_MS = 2000;
const POLL_MS = 20;
const LIMIT_MS = 10 * 60_000;
const VICTIM = 1;

export interface RunResult extends MeasuredRecovery {
  mode: string;
  rows: number;
  seconds: { fill: number; checkpoint: number | null; restore: number | null };
  samplesRedone: number;
  /** Rows that are not there any more. */
  rowsLost: number;
  /** Acknowledged pushes (of one shard each) that are gone, or there twice. */
  pushes: { acked: number; lost: number; duplicated: number };
  mismatchedBlocks: number | null;
  /** Memory of all PS before the failure, per row. */
  bytesPerRow: number;
  /**
   * Processor time of the PS that are left, from the kill until the job is redundant: it hardly depends on
   * who else is there.
   */
  psCpuSeconds: number | null;
}

/** Nobody trains: there is no throughput to compare. */
const NO_TRAINING = {
  worstSecond: null,
  mean: null,
  worstSecondFromKill: null,
  meanUntilDecoded: null,
  firstTwoSeconds: null,
  otherSeconds: null,
};

type RecoveryProgress = { mono: number; samples: number };

export class RecoveryRun {
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-recovery-'));
  private readonly events: RoleEvent[] = [];
  private readonly progress: RecoveryProgress[] = [];
  private readonly steps: TrainedStep[] = [];
  private readonly clients: BenchClient[] = [];
  private readonly trained: ClientDone[] = [];
  private readonly clusters: Processes[] = [];
  /** Processes of the PS of the first cluster. */
  private readonly pids = new Map<string, number>();
  private client: Client | undefined;
  private kill: KillRecord | undefined;
  private noticed: () => void = () => {};
  private readonly detected = new Promise<void>((resolve) => {
    this.noticed = resolve;
  });

  constructor(
    private readonly options: RecoveryOptions,
    private readonly mode: TrainingMode,
    private readonly rows: number,
  ) {}

  async run(): Promise<RunResult> {
    try {
      const result = await this.story();
      await this.cluster.stop();
      return result;
    } finally {
      for (const client of this.clients) client.kill();
      await this.client?.close();
      for (const cluster of this.clusters) await cluster.abandon();
      rmSync(this.directory, { recursive: true, force: true });
    }
  }

  private async story(): Promise<RunResult> {
    const { options, mode, rows } = this;
    const client = await this.form();
    const fillFrom = monotonicMs();
    await this.start('fill').done;
    const fill = (monotonicMs() - fillFrom) / 1000;
    const training = this.start('train');
    const started = await this.firstProgress(training);
    await this.sleepUntil(started + (options.smoke ? 0 : WARM_UP_MS));
    const offered = mode.load === undefined ? undefined : await this.keepPace(training, mode.load);
    const calmFrom = monotonicMs();
    const saved = mode.intervalSeconds === undefined ? undefined : await this.save(mode.intervalSeconds);
    await this.sleepUntil(saved?.killAt ?? calmFrom + options.calmSeconds * 1000);
    const bytes = (await client.status()).nodes.reduce((sum, node) => sum + node.bytes, 0);
    if (mode.idle) {
      await this.finish();
      await this.sleepUntil(monotonicMs() + IDLE_MS);
    }
    const kill = this.strike(client);
    const cpuBefore = this.psCpu();
    let cpu: number | null = null;
    let restore: number | null = null;
    if (saved) restore = await this.startAgain(training, saved.samples);
    else if (mode.code === 'none')
      throw new KintsugiError('BAD_ARGUMENT', 'without a code nothing is mended');
    else {
      await this.healed();
      cpu = this.psCpu() - cpuBefore;
      await this.sleepUntil(kill.mono + options.watchSeconds * 1000);
    }
    const endedAt = monotonicMs();
    if (!mode.idle) await this.finish();
    const before = this.progress.findLast((point) => point.mono <= kill.mono)?.samples ?? 0;
    const { events, progress, steps } = this;
    return {
      mode: mode.name,
      rows,
      seconds: { fill, checkpoint: saved?.seconds ?? null, restore },
      samplesRedone: saved ? before - saved.samples : 0,
      rowsLost: rows - (await this.countRows()),
      pushes: await this.checkPushes(),
      mismatchedBlocks: mode.code === 'none' ? null : (await checkParity(this.client!)).mismatched,
      bytesPerRow: bytes / rows,
      psCpuSeconds: cpu,
      ...measure({ events, kill, progress, steps, offered, calmFrom, endedAt }),
      ...(mode.idle ? NO_TRAINING : {}),
    };
  }

  // ---- the cluster

  private async form(): Promise<Client> {
    const { options, mode } = this;
    const cluster = new Processes({
      options: localOptions(options, mode),
      directory: join(this.directory, `${this.clusters.length}`),
      onEvent: (event, line) => this.onEvent(event, line),
      onBack: () => {},
    });
    this.clusters.push(cluster);
    await cluster.startScheduler();
    await Promise.all(Array.from({ length: options.ps }, (_, index) => cluster.startPs(index)));
    const client = await connect(cluster.address, { connectTimeoutMs: CONNECT_MS });
    this.client = client;
    const optimizer = { kind: 'adagrad', lr: 0.05, eps: 1e-10, initialAccumulator: 0 } as const;
    await client.createTable({ name: TABLE, dim: options.dim, optimizer });
    return client;
  }

  private get cluster(): Processes {
    return this.clusters.at(-1)!;
  }

  private onEvent(event: RoleEvent, line: string): void {
    if (this.options.log !== undefined) appendFileSync(this.options.log, `${line}\n`);
    // Events of a second cluster say nothing about the failure of the first.
    if (this.clusters.length > 1) return;
    this.events.push(event);
    const { name, pid } = event;
    if (event.event === 'process.started' && String(name).startsWith('ps-'))
      this.pids.set(String(name), Number(pid));
    if (this.kill && detectionOf([event], this.kill)) this.noticed();
  }

  private psCpu(): number {
    let seconds = 0;
    for (const [name, pid] of this.pids) if (name !== psName(VICTIM)) seconds += cpuSeconds(pid) || 0;
    return seconds;
  }

  private strike(client: Client): KillRecord {
    const map = client.clusterMap;
    const name = psName(VICTIM);
    const node = map.nodes.find((entry) => entry.name === name)!;
    const shards = map.groups.flatMap((group) =>
      group.data.flatMap((entry, member) =>
        entry.node === node.id ? [{ group: group.id, member, gen: entry.gen }] : [],
      ),
    );
    this.kill = { role: 'ps', name, inc: node.inc, mono: monotonicMs(), shards };
    this.cluster.kill('ps', name);
    return this.kill;
  }

  /** Redundant again after the failure was noticed, or as far as so few PS allow. */
  private async healed(): Promise<void> {
    await this.cluster.race(this.within(this.detected));
    const deadline = monotonicMs() + LIMIT_MS;
    while (!['full', 'degraded'].includes((await this.client!.status()).redundancy)) {
      if (monotonicMs() > deadline) throw new KintsugiError('TIMEOUT', 'the job did not become redundant');
      await this.sleepUntil(monotonicMs() + POLL_MS);
    }
  }

  private async within(work: Promise<void>): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const error = new KintsugiError('TIMEOUT', 'the failure was not noticed');
      timer = setTimeout(() => reject(error), LIMIT_MS);
    });
    await Promise.race([work, late]).finally(() => clearTimeout(timer));
  }

  // ---- clients

  private start(job: 'fill' | 'train' | 'save' | 'restore', samples = 0): BenchClient {
    const { dim, batch, compute } = this.options;
    const scheduler = this.cluster.address;
    const directory = join(this.directory, 'checkpoint');
    const client = new BenchClient(
      { job, scheduler, rows: this.rows, dim, batch, compute, samples, directory },
      (report) => {
        if (report.kind === 'progress') {
          this.progress.push({ mono: report.mono, samples: report.samples });
          this.steps.push(...(report.steps ?? []));
        }
        if (report.kind === 'served') this.events.push({ ...report, event: 'shard.served', source: job });
      },
    );
    this.clients.push(client);
    return client;
  }

  private async firstProgress(training: BenchClient): Promise<number> {
    const report = await training.report(
      (each): each is ClientReport & { kind: 'progress' } => each.kind === 'progress' && each.samples > 0,
    );
    return report.mono;
  }

  /** Learns how fast training can be, and has it go on at a part of that. Returns samples per second. */
  private async keepPace(training: BenchClient, load: number): Promise<number> {
    const { smoke, batch } = this.options;
    const part = smoke ? 0.1 : 1;
    const first = this.progress.at(-1)!;
    await this.sleepUntil(first.mono + part * LEARN_MS);
    const last = this.progress.at(-1)!;
    const samples = load * (last.samples - first.samples) * (1000 / (last.mono - first.mono));
    training.send(`pace ${samples / batch}`);
    await this.sleepUntil(monotonicMs() + part * SETTLE_MS);
    return samples;
  }

  private async sleepUntil(mono: number): Promise<void> {
    const left = Math.max(0, mono - monotonicMs());
    await this.cluster.race(new Promise((resolve) => setTimeout(resolve, left)));
  }

  private async finish(): Promise<void> {
    const training = this.clients.at(-1)!;
    training.send('stop');
    this.trained.push(await training.done);
  }

  // ---- checkpoints

  /**
   * One checkpoint beside the training; the failure comes in the middle of the interval, which is its mean.
   */
  private async save(interval: number): Promise<{ samples: number; seconds: number; killAt: number }> {
    const saver = this.start('save');
    const from = monotonicMs();
    const samples = this.progress.at(-1)?.samples ?? 0;
    saver.send('save');
    await saver.report((each): each is ClientReport & { kind: 'saved' } => each.kind === 'saved');
    const seconds = (monotonicMs() - from) / 1000;
    saver.send('stop');
    await saver.done;
    return { samples, seconds, killAt: from + (interval * 1000) / 2 };
  }

  /**
   * As soon as the failure is noticed; until training is past where it was. @returns seconds of process start
   * and restore
   */
  private async startAgain(training: BenchClient, samples: number): Promise<number> {
    await this.within(this.detected);
    const from = monotonicMs();
    const reached = Math.max(...this.progress.map((point) => point.samples));
    training.kill();
    await this.client?.close();
    await this.cluster.abandon();
    await this.form();
    await this.start('restore').done;
    const seconds = (monotonicMs() - from) / 1000;
    const again = this.start('train', samples);
    await again.report(
      (each): each is ClientReport & { kind: 'progress' } =>
        each.kind === 'progress' && each.samples > reached,
    );
    await this.sleepUntil(monotonicMs() + this.options.watchSeconds * 1000);
    return seconds;
  }

  // ---- proof

  private async countRows(): Promise<number> {
    const client = this.client!;
    const { spec } = client.table(TABLE);
    return (await rowCounts(internalsOf(client).session)).get(spec.id) ?? 0;
  }

  private checkPushes(): Promise<{ acked: number; lost: number; duplicated: number }> {
    const counts = this.trained.map(({ id, counts: own }): { client: number; counts: PushCounts[] } => {
      return { client: id, counts: own };
    });
    return checkPushes(this.client!, counts);
  }
}
