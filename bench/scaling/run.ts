/**
 * One job of real processes that trains while it grows and shrinks again. New nodes are started before a
 * scaling is timed: on one machine their start takes the cores of those that train, which says nothing about
 * moving shards.
 */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Processes } from '../../src/fleet/local/processes.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { checkPushes } from '../../src/library/tools/audit.js';
import { checkParity } from '../../src/library/tools/parity.js';
import { scale } from '../../src/library/tools/scaling.js';
import { monotonicMs } from '../../src/net/log.js';
import type { ClientReport } from '../common/training/child.js';
import { BenchClient } from '../common/training/client.js';
import { localOptions } from '../common/training/cluster.js';
import { TABLE } from '../common/training/keys.js';
import {
  type Calm,
  type MeasuredScaling,
  measureScaling,
  type ScalingRunProgress,
  type ScalingSpan,
  windowsOf,
} from './measure.js';
import type { ScalingOptions } from './options.js';

const CONNECT_MS = 60_000;
/** Training is faster from second to second meanwhile: V8 compiles what runs most. */
const WARM_UP_MS = 15_000;
/** After the last node has joined, and after a scaling. */
const REST_MS = 2000;
const LIMIT_MS = 5 * 60_000;
const MODE = { name: '4+1', code: '4+1', k: 4 };

export interface ScalingResult {
  scalings: MeasuredScaling[];
  /** Rates of windows of 100 ms from `from` on. */
  windows: number[];
  from: number;
  bytes: number;
  pushes: { acked: number; lost: number; duplicated: number };
  mismatchedBlocks: number;
}

export class ScalingRun {
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-scaling-'));
  private readonly progress: ScalingRunProgress[] = [];
  private readonly clients: BenchClient[] = [];
  private readonly cluster: Processes;
  private client: Client | undefined;

  constructor(private readonly options: ScalingOptions) {
    const { ps, moveRate, log } = options;
    this.cluster = new Processes({
      options: { ...localOptions({ ps }, MODE), moveRate, balanceJoining: false },
      directory: this.directory,
      onEvent: (_, line) => {
        if (log !== undefined) appendFileSync(log, `${line}\n`);
      },
      onBack: () => {},
    });
  }

  async run(): Promise<ScalingResult> {
    try {
      const result = await this.cluster.race(this.story());
      await this.cluster.stop();
      return result;
    } finally {
      for (const client of this.clients) client.kill();
      await this.client?.close();
      await this.cluster.abandon();
      rmSync(this.directory, { recursive: true, force: true });
    }
  }

  private async story(): Promise<ScalingResult> {
    const { options, cluster } = this;
    await cluster.startScheduler();
    await Promise.all(Array.from({ length: options.ps }, (_, index) => cluster.startPs(index)));
    const client = await connect(cluster.address, { connectTimeoutMs: CONNECT_MS });
    this.client = client;
    const optimizer = { kind: 'adagrad', lr: 0.05, eps: 1e-10, initialAccumulator: 0 } as const;
    await client.createTable({ name: TABLE, dim: options.dim, optimizer });
    await this.start('fill').done;
    const bytes = (await client.status()).nodes.reduce((sum, node) => sum + node.bytes, 0);
    const training = this.start('train');
    await training.report((each): each is ClientReport & { kind: 'progress' } => {
      return each.kind === 'progress' && each.samples > 0;
    });
    await this.rest(options.smoke ? 0 : WARM_UP_MS);
    const from = monotonicMs();
    const { ps, to } = options;
    const few = await this.calm();
    for (let index = ps; index < to; index++) await cluster.startAnotherPs();
    await this.rest(options.smoke ? 0 : REST_MS);
    const grown = await this.scaled(client, ps, to);
    const many = await this.calm();
    const shrunk = await this.scaled(client, to, ps);
    const again = await this.calm();
    const spans: ScalingSpan[] = [
      { ...grown, before: few, after: many },
      { ...shrunk, before: many, after: again },
    ];
    const until = monotonicMs();
    training.send('stop');
    const { id, counts } = await training.done;
    return {
      scalings: spans.map((span) => measureScaling(this.progress, span)),
      windows: windowsOf(this.progress, from, until),
      from,
      bytes,
      pushes: await checkPushes(client, [{ client: id, counts }]),
      mismatchedBlocks: (await checkParity(client)).mismatched,
    };
  }

  private async calm(): Promise<Calm> {
    const from = monotonicMs();
    await this.rest(this.options.calmSeconds * 1000);
    return { from, to: monotonicMs() };
  }

  private async scaled(client: Client, from: number, to: number) {
    const begun = monotonicMs();
    const { shardsMoved, bytesMoved } = await scale(client, to, { timeoutMs: LIMIT_MS });
    const ended = monotonicMs();
    await this.rest(REST_MS);
    return { from, to, begun, ended, shardsMoved, bytesMoved };
  }

  private start(job: 'fill' | 'train'): BenchClient {
    const { rows, dim, batch, compute } = this.options;
    const client = new BenchClient(
      { job, scheduler: this.cluster.address, rows, dim, batch, compute },
      (report) => {
        if (report.kind !== 'progress') return;
        const { mono, samples, slowestMs } = report;
        this.progress.push({ mono, samples, slowestMs });
      },
    );
    this.clients.push(client);
    return client;
  }

  private rest(ms: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }
}
