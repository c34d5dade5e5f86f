/**
 * One mode of the comparison: its cluster stays up for all rounds, so that rounds of the modes can take turns
 * on one machine and a ratio compares seconds that lie side by side. CPU time is the kernel's, by role; an
 * idle cluster costs the same in every mode.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KintsugiError } from '../../src/common/errors.js';
import { numberOf, type RoleEvent } from '../../src/fleet/local/events.js';
import { Processes } from '../../src/fleet/local/processes.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { BenchClient } from '../common/training/client.js';
import { localOptions } from '../common/training/cluster.js';
import { TABLE } from '../common/training/keys.js';
import type { TrainingMode } from '../common/training/modes.js';
import type { OverheadJob } from './options.js';
import { JobWatchers } from './watched.js';

const CONNECT_MS = 120_000;

export interface MeasuredRound {
  samplesPerSecond: number;
  /** Seconds of a core per million samples. */
  psCpu: number;
  workerCpu: number;
  schedulerCpu: number;
  /** Processor time of this process, in which everything runs that looks at the job. */
  ownCpu: number;
  /**
   * Rows, deltas and acknowledgements that all PS sent per step: bytes of payload, messages, and frames that
   * carried them. NaN: not asked for.
   */
  bytesPerStep: number;
  messagesPerStep: number;
  framesPerStep: number;
}

/** Counters of all PS since they started. */
type CandidateSent = Record<'bytes' | 'messages' | 'frames', number>;

const SENT_COUNTERS: Readonly<Record<keyof CandidateSent, string>> = {
  bytes: 'network_sent_bytes_total',
  messages: 'sent_messages_total',
  frames: 'sent_frames_total',
};

export class MeasuredCandidate {
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-overhead-'));
  private readonly processes: Processes;
  private readonly pids = new Map<string, number>();
  private readonly addresses: string[] = [];
  private readonly clients: BenchClient[] = [];
  private events: RoleEvent[] = [];
  private workerCpu = 0;
  private workers = 0;
  private client: Client | undefined;

  constructor(
    readonly mode: TrainingMode,
    private readonly ps: number,
    private readonly job: OverheadJob,
    private readonly data: string,
    /** True: reads from the metrics of PS what they sent. Such reads look at the job. */
    private readonly asksSent: boolean,
  ) {
    this.processes = new Processes({
      options: localOptions({ ps }, mode),
      directory: this.directory,
      onEvent: (event) => this.onEvent(event),
      onBack: () => {},
    });
  }

  async start(): Promise<void> {
    await this.processes.startScheduler();
    await Promise.all(Array.from({ length: this.ps }, (_, index) => this.processes.startPs(index)));
    this.client = await connect(this.processes.address, { connectTimeoutMs: CONNECT_MS });
    if (this.job.worker === undefined) await this.client.createTable({ name: TABLE, dim: this.job.dim });
  }

  async stop(): Promise<void> {
    for (const client of this.clients) client.kill();
    await this.client?.close();
    await this.processes.abandon();
    rmSync(this.directory, { recursive: true, force: true });
  }

  async round(): Promise<MeasuredRound> {
    if (!this.mode.watched) return this.work();
    const pages = [this.processes.address, ...this.addresses];
    const watchers = await JobWatchers.start(this.processes.address, pages, this.mode.watched);
    const round = await this.work();
    await watchers.stop();
    return round;
  }

  private async work(): Promise<MeasuredRound> {
    const { job, mode } = this;
    const cpu = this.cpuOf('ps-');
    const schedulerCpu = this.cpuOf('scheduler');
    const before = await this.sent();
    const own = process.cpuUsage();
    const saver = mode.intervalSeconds === undefined ? undefined : this.save(mode.intervalSeconds);
    const work = job.worker === undefined ? await this.push() : await this.train(job.worker);
    await saver?.();
    const { user, system } = process.cpuUsage(own);
    const millions = job.samples / 1e6;
    const after = await this.sent();
    const perStep = (what: keyof CandidateSent) => (after[what] - before[what]) / (job.samples / job.batch);
    return {
      samplesPerSecond: job.samples / work.seconds,
      psCpu: (this.cpuOf('ps-') - cpu) / millions,
      workerCpu: work.cpuSeconds / millions,
      schedulerCpu: (this.cpuOf('scheduler') - schedulerCpu) / millions,
      ownCpu: (user + system) / 1e6 / millions,
      bytesPerStep: perStep('bytes'),
      messagesPerStep: perStep('messages'),
      framesPerStep: perStep('frames'),
    };
  }

  /** Bytes that all PS hold for each row of the tables. */
  async bytesPerRow(): Promise<number> {
    const { nodes } = await this.client!.status();
    const sum = (field: 'bytes' | 'rows') => nodes.reduce((total, node) => total + node[field], 0);
    return sum('bytes') / sum('rows');
  }

  // ---- work

  private async push(): Promise<{ seconds: number; cpuSeconds: number }> {
    const { samples, batch, dim } = this.job;
    const scheduler = this.processes.address;
    const client = new BenchClient({ job: 'push', scheduler, rows: samples, dim, batch, compute: 0 });
    this.clients.push(client);
    const done = await this.processes.race(client.done);
    return { seconds: done.seconds, cpuSeconds: done.cpuSeconds };
  }

  private async train(flags: string[]): Promise<{ seconds: number; cpuSeconds: number }> {
    const { batch, dim, epochs } = this.job;
    this.events = [];
    this.workerCpu = 0;
    const model = ['--batch', `${batch}`, '--dim', `${dim}`, '--epochs', `${epochs}`, ...flags];
    const name = `worker-${this.workers++}`;
    if (this.mode.watched?.includes('tensorboard'))
      model.push('--tensorboard', join(this.directory, 'board'));
    // Every worker trains all of the data, as a run of its own.
    const worker = this.processes.startWorker(name, ['--run', name, '--data', this.data, ...model]);
    await this.processes.race(worker.exited);
    const done = this.events.find((event) => event.event === 'worker.done');
    if (!done) throw new KintsugiError('INTERNAL', `${name} did not say what it did`);
    return { seconds: numberOf(done, 'seconds'), cpuSeconds: this.workerCpu };
  }

  /** Checkpoints at the interval until the answer is called; one that is under way then is waited for. */
  private save(interval: number): () => Promise<void> {
    const scheduler = this.processes.address;
    const directory = join(this.directory, 'checkpoint');
    const options = { rows: 0, dim: 1, batch: 1, compute: 0, directory };
    const saver = new BenchClient({ job: 'save', scheduler, ...options });
    this.clients.push(saver);
    saver.send('save');
    const timer = setInterval(() => saver.send('save'), interval * 1000);
    return async () => {
      clearInterval(timer);
      saver.send('stop');
      await saver.done;
    };
  }

  // ---- what it cost

  private onEvent(event: RoleEvent): void {
    this.events.push(event);
    if (event.event === 'process.started') this.pids.set(String(event.name), Number(event.pid));
    if (event.event === 'ps.ready') this.addresses.push(String(event.address));
    // A worker is gone soon after its last record, so its processor time is read here.
    if (event.event === 'worker.progress' || event.event === 'worker.done')
      this.workerCpu = cpuSeconds(this.pids.get(event.source)) || this.workerCpu;
  }

  private cpuOf(role: string): number {
    let seconds = 0;
    for (const [name, pid] of this.pids) if (name.startsWith(role)) seconds += cpuSeconds(pid) || 0;
    return seconds;
  }

  private async sent(): Promise<CandidateSent> {
    if (!this.asksSent) return { bytes: Number.NaN, messages: Number.NaN, frames: Number.NaN };
    const texts = this.addresses.map(async (address) => (await fetch(`http://${address}/metrics`)).text());
    const sent: CandidateSent = { bytes: 0, messages: 0, frames: 0 };
    for (const text of await Promise.all(texts)) {
      for (const [what, counter] of Object.entries(SENT_COUNTERS)) {
        const lines = [...text.matchAll(new RegExp(`^kintsugi_${counter}\\{[^}]*\\} (\\S+)$`, 'gm'))];
        const sum = lines.reduce((all, [, value]) => all + Number(value), 0);
        sent[what as keyof CandidateSent] += lines.length > 0 ? sum : Number.NaN;
      }
    }
    return sent;
  }
}
