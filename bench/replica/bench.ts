/**
 * `kintsugi bench replica`: how old the answers of a replica are while a client pushes, and what it costs the
 * pushes that one follows. Sides take turns within a round: nobody follows, or a replica of all shards does.
 * Each has the load of `bench overhead` (`pushes`) twice: as fast as acknowledgements come, and steadily, at
 * half of that.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../src/common/errors.js';
import { Child } from '../../src/fleet/local/child.js';
import type { Processes } from '../../src/fleet/local/processes.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import { withJob } from '../common/job.js';
import { BenchReport } from '../common/report.js';
import { median, quantile } from '../common/statistics.js';
import { TABLE } from '../common/training/keys.js';
import type { ReplicaBenchOptions } from './options.js';
import type { PusherOptions, PusherOrder, PusherReport } from './pusher.js';

const PATH = fileURLToPath(new URL('./pusher.js', import.meta.url));
/** Before a measurement, under its load: a replica is new in each round, and its code is compiled then. */
const WARM_MS = 2000;
/** Between two pulls of the replica. */
const PULL_PAUSE_MS = 10;
const PULL_KEYS = 64;

const P99_GOAL_MS = 50;
const PRICE_GOAL = 0.97;

type ReplicaLoad = 'steady' | 'saturated';
type PushingSide = 'none' | 'replica';
const LOADS: readonly ReplicaLoad[] = ['steady', 'saturated'];

interface MeasuredReplica {
  /** Keys of acknowledged pushes per second. */
  rate: number;
  /** Latency of acknowledgements. */
  medianMs: number;
  p99Ms: number;
  /** Seconds of a core per million keys, of all PS, and of the replica. */
  psCpu: number;
  replicaCpu: number;
}

class Pusher {
  private readonly process: ChildProcess;
  private readonly acknowledged: [at: number, tookMs: number][] = [];
  private readonly waiters: { for: PusherReport; resolve(): void }[] = [];
  private failed: (error: Error) => void = () => {};
  readonly failure = new Promise<never>((_, reject) => {
    this.failed = reject;
  });
  /** The table is filled. */
  readonly ready: Promise<void>;

  constructor(options: PusherOptions) {
    this.failure.catch(() => {});
    this.process = fork(PATH, [JSON.stringify(options)], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    this.process.on('message', (report: PusherReport) => {
      if (typeof report !== 'string') this.acknowledged.push(...report);
      else for (const { for: wanted, resolve } of this.waiters) if (wanted === report) resolve();
    });
    this.ready = this.told('ready');
    this.ready.catch(() => {});
    this.process.on('exit', () => this.failed(new KintsugiError('INTERNAL', 'the client has ended')));
  }

  private async told(report: 'ready' | 'idle'): Promise<void> {
    const arrived = new Promise<void>((resolve) => this.waiters.push({ for: report, resolve }));
    await Promise.race([arrived, this.failure]);
  }

  order(rate: PusherOrder['rate']): void {
    this.process.send({ rate } satisfies PusherOrder);
  }

  async pause(): Promise<void> {
    const idle = this.told('idle');
    this.order(0);
    await idle;
  }

  between(from: number, to: number): number[] {
    return this.acknowledged.filter(([at]) => at >= from && at < to).map(([, tookMs]) => tookMs);
  }

  stop(): void {
    this.process.kill('SIGKILL');
  }
}

const sorted = (values: readonly number[]) => [...values].sort((one, other) => one - other);

class ReplicaStory {
  private readonly measured: Record<ReplicaLoad, Record<PushingSide, MeasuredReplica[]>> = {
    steady: { none: [], replica: [] },
    saturated: { none: [], replica: [] },
  };
  /** Age of answers to pulls in milliseconds, by round. */
  private readonly lags: Record<ReplicaLoad, number[][]> = { steady: [], saturated: [] };
  private readonly fills: number[] = [];
  /** Pushes per second. */
  private steadyRate = 0;

  constructor(
    private readonly options: ReplicaBenchOptions,
    private readonly cluster: Processes,
    private readonly pids: ReadonlyMap<string, number>,
    private readonly pusher: Pusher,
    private readonly client: Client,
    /** Streams of shards that a replica was thrown out of. */
    private readonly dropped: () => number,
  ) {}

  async run(report: BenchReport): Promise<void> {
    const { options, pusher } = this;
    await pusher.ready;
    // The first one compiles code.
    const [first, second] = [await this.measure('all'), await this.measure('all')];
    this.steadyRate = Math.max(first.rate, second.rate) / options.batch / 2;
    for (let round = 0; round < options.rounds; round++) {
      const sides: PushingSide[] = round % 2 === 0 ? ['none', 'replica'] : ['replica', 'none'];
      for (const side of sides) {
        await pusher.pause();
        const replica = side === 'replica' ? await this.follow() : undefined;
        for (const load of LOADS) {
          const asking = replica ? this.ask(load) : undefined;
          const result = await this.measure(load === 'steady' ? this.steadyRate : 'all', replica?.pid);
          await asking?.();
          this.measured[load][side].push(result);
          const { rate, medianMs, p99Ms } = result;
          const times = `${medianMs.toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms`;
          options.tell(`round ${round + 1}, ${side}, ${load}: ${Math.round(rate)} keys/s, ${times}`);
        }
        await pusher.pause();
        await replica?.stop();
      }
    }
    this.judge(report);
  }

  private async follow(): Promise<Child> {
    const began = monotonicMs();
    const args = ['replica', '--scheduler', this.cluster.address, '--name', 'replica'];
    const replica = new Child({ name: 'replica', args, onEvent: () => {} });
    await replica.event('replica.ready');
    this.fills.push(monotonicMs() - began);
    return replica;
  }

  /** Pulls until the answer is called. */
  private ask(load: ReplicaLoad): () => Promise<void> {
    const keys = BigUint64Array.from({ length: PULL_KEYS }, (_, i) => BigInt(i * 31));
    const lags: number[] = [];
    this.lags[load].push(lags);
    let over = false;
    const from = monotonicMs() + WARM_MS;
    const asking = (async () => {
      while (!over) {
        await this.client
          .pull([{ table: TABLE, keys }], {
            onAnswer: ({ lagMs }) => {
              if (monotonicMs() >= from) lags.push(lagMs);
            },
          })
          .catch((error: unknown) => {
            if (!(error instanceof KintsugiError && error.code === 'STALE_REPLICA')) throw error;
            // Older than a second.
            lags.push(Number.POSITIVE_INFINITY);
          });
        await pause(PULL_PAUSE_MS);
      }
    })();
    return () => {
      over = true;
      return asking;
    };
  }

  private async measure(rate: PusherOrder['rate'], replica?: number): Promise<MeasuredReplica> {
    const { pusher, options } = this;
    pusher.order(rate);
    await pause(WARM_MS);
    const ofReplica = () => (replica === undefined ? 0 : cpuSeconds(replica));
    const [cpu, replicaCpu] = [this.psCpu(), ofReplica()];
    const from = monotonicMs();
    await Promise.race([pause(options.seconds * 1000), pusher.failure]);
    const to = monotonicMs();
    const [used, replicaUsed] = [this.psCpu() - cpu, ofReplica() - replicaCpu];
    // The next report has the acknowledgements until now.
    await pause(100);
    const times = sorted(pusher.between(from, to));
    const keys = times.length * options.batch;
    return {
      rate: keys / ((to - from) / 1000),
      medianMs: quantile(times, 0.5),
      p99Ms: quantile(times, 0.99),
      psCpu: used / (keys / 1e6),
      replicaCpu: replicaUsed / (keys / 1e6),
    };
  }

  private psCpu(): number {
    let seconds = 0;
    for (const [name, pid] of this.pids) if (name.startsWith('ps-')) seconds += cpuSeconds(pid);
    return seconds;
  }

  private judge(report: BenchReport): void {
    for (const load of LOADS) {
      const { none, replica } = this.measured[load];
      const sides = (field: keyof MeasuredReplica) => ({
        none: median(none.map((each) => each[field])),
        replica: median(replica.map((each) => each[field])),
      });
      const ratios = (field: keyof MeasuredReplica) =>
        replica.map((each, i) => each[field] / none[i]![field]);
      const spread = (field: keyof MeasuredReplica) => {
        const all = ratios(field);
        return { median: median(all), least: Math.min(...all), most: Math.max(...all) };
      };
      const lag = (q: number) => {
        const rounds = this.lags[load].map((round) => quantile(sorted(round), q));
        return { median: median(rounds), least: Math.min(...rounds), most: Math.max(...rounds) };
      };
      report.add({ name: `${load}: acknowledged`, unit: 'keys/s', values: sides('rate') });
      report.add({ name: `${load}: of none`, unit: '', values: spread('rate') });
      report.add({ name: `${load}: acknowledgement, median`, unit: 'ms', values: sides('medianMs') });
      report.add({ name: `${load}: acknowledgement, p99`, unit: 'ms', values: sides('p99Ms') });
      report.add({ name: `${load}: CPU of PS`, unit: 's per M keys', values: sides('psCpu') });
      const ofReplica = median(replica.map(({ replicaCpu }) => replicaCpu));
      report.add({
        name: `${load}: CPU of the replica`,
        unit: 's per M keys',
        values: { median: ofReplica },
      });
      report.add({ name: `${load}: CPU of PS, of none`, unit: '', values: spread('psCpu') });
      report.add({ name: `${load}: lag of answers, median`, unit: 'ms', values: lag(0.5) });
      report.add({ name: `${load}: lag of answers, p99`, unit: 'ms', values: lag(0.99) });
      report.atMost(`${load}: lag, p99 (ms)`, lag(0.99).median, P99_GOAL_MS);
      report.goal(`${load}: acknowledged, of none`, spread('rate').median, PRICE_GOAL);
    }
    report.add({ name: 'thrown out', unit: 'streams', values: { all: this.dropped() } });
    report.add({ name: 'until a replica is ready', unit: 'ms', values: { median: median(this.fills) } });
  }
}

/** @throws BAD_ARGUMENT, NOT_ENOUGH_NODES */
export async function run(options: ReplicaBenchOptions): Promise<void> {
  const { ps, mode, rounds, seconds, rows, dim, batch } = options;
  const report = new BenchReport('replica', options);
  Object.assign(report.parameters, { ps, code: mode.code, rounds, seconds, rows, dim, batch });
  const pids = new Map<string, number>();
  let dropped = 0;
  const onEvent = (event: { event: string; name?: unknown; pid?: unknown; reason?: unknown }) => {
    if (event.event === 'replica.dropped' && event.reason !== 'left') dropped++;
    if (event.event === 'process.started') pids.set(String(event.name), Number(event.pid));
  };
  await withJob({ ps, mode, onEvent }, async (cluster) => {
    const pusher = new Pusher({ scheduler: cluster.address, rows, dim, batch });
    const client = await connect(cluster.address, { connectTimeoutMs: 120_000, replica: true });
    try {
      await new ReplicaStory(options, cluster, pids, pusher, client, () => dropped).run(report);
    } finally {
      pusher.stop();
      await client.close();
    }
  });
  report.finish();
}
