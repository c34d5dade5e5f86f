/** The job of a round: real processes, each PS with a memory limit. */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sumOf } from '../../src/common/statistics.js';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { Processes, psName } from '../../src/fleet/local/processes.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { type Client, connect } from '../../src/library/client/client.js';
import type { AttackedJob } from '../common/attacks/attack.js';
import { localOptions } from '../common/training/cluster.js';
import type { OverloadOptions, OverloadShape } from './options.js';

const CONNECT_MS = 120_000;
const FILL_ROWS = 4096;
const FILL_DIM = 64;
/** A job that does not end in order is killed. */
const STOP_MS = 20_000;

export class OverloadJob implements AttackedJob {
  client!: Client;
  /** PS that the scheduler declared lost, and those that an attack killed. */
  lost = 0;
  killed = 0;
  /** PS that this benchmark killed for their size. */
  tooLarge = 0;
  /** Processes that ended by themselves. */
  readonly died: string[] = [];
  readonly onLine: (line: string) => void;
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-overload-'));
  private readonly cluster: Processes;
  private readonly ps = new Map<string, number>();
  /** Processor time by process id, as it was last seen. */
  private readonly cpu = new Map<number, number>();
  private victim: number | undefined;
  private turn = 0;

  private constructor(
    private readonly shape: OverloadShape,
    private readonly options: OverloadOptions,
    readonly slowPlace: string,
  ) {
    const { log, memory } = options;
    this.onLine = (line) => {
      if (log !== undefined) appendFileSync(log, `${line}\n`);
    };
    const { code, ps } = shape;
    const mode = { name: code, code, k: Number.parseInt(code, 10) };
    this.cluster = new Processes({
      options: { ...localOptions({ ps }, mode), memory },
      directory: this.directory,
      onEvent: (event, line) => this.onEvent(event, line),
      onBack: () => {},
    });
    this.cluster.failed.catch((error: Error) => this.died.push(error.message));
  }

  static async start(
    shape: OverloadShape,
    options: OverloadOptions,
    slowPlace: string,
  ): Promise<OverloadJob> {
    const job = new OverloadJob(shape, options, slowPlace);
    try {
      await job.cluster.startScheduler();
      await Promise.all(Array.from({ length: shape.ps }, (_, index) => job.cluster.startPs(index)));
      job.client = await connect(job.address, { connectTimeoutMs: CONNECT_MS });
      return job;
    } catch (error) {
      await job.cluster.abandon();
      rmSync(job.directory, { recursive: true, force: true });
      throw error;
    }
  }

  private onEvent({ event, name, pid }: RoleEvent, line: string): void {
    if (event === 'process.started' && String(name).startsWith('ps-')) this.ps.set(`${name}`, Number(pid));
    if (event === 'node.lost') this.lost++;
    this.onLine(line);
  }

  get address(): string {
    return this.cluster.address;
  }

  /** Names and process ids of the PS. */
  pids(): Iterable<readonly [name: string, pid: number]> {
    return this.ps;
  }

  /** Processor time of all PS, also of those that were killed. */
  cpuSeconds(): number {
    for (const pid of this.ps.values()) {
      const seconds = cpuSeconds(pid);
      if (!Number.isNaN(seconds)) this.cpu.set(pid, seconds);
    }
    return sumOf([...this.cpu.values()], (seconds) => seconds);
  }

  /** Pushes rows until each PS holds so much of rows and parity on average. */
  async fill(bytes: number): Promise<void> {
    const table = await this.client.createTable({ name: 'filled', dim: FILL_DIM });
    const ones = new Float32Array(FILL_ROWS * FILL_DIM).fill(1);
    const held = async () => {
      const { nodes } = await this.client.status();
      return nodes.reduce((sum, node) => sum + node.bytes, 0) / nodes.length;
    };
    for (let first = 0; (await held()) < bytes; ) {
      // The sizes that the scheduler knows are a second old.
      for (let i = 0; i < 8; i++, first += FILL_ROWS)
        await table.push(
          BigUint64Array.from({ length: FILL_ROWS }, (_, row) => BigInt(first + row)),
          ones,
        );
    }
  }

  psAddresses(): string[] {
    return this.client.clusterMap.nodes.map(({ address }) => address);
  }

  scaled(full: number): number {
    return Math.max(1, Math.round(full * this.options.scale));
  }

  killOne(): void {
    this.victim = this.turn++ % this.shape.ps;
    this.killed++;
    this.cpuSeconds();
    this.cluster.kill('ps', psName(this.victim));
  }

  async startKilled(): Promise<void> {
    const { victim } = this;
    this.victim = undefined;
    if (victim !== undefined) await this.cluster.startPs(victim);
  }

  /** A PS beyond its size would take the memory of everybody. */
  killTooLarge(name: string): void {
    if (!this.ps.has(name) || !this.cluster.isReady(name)) return;
    this.tooLarge++;
    this.cluster.kill('ps', name);
  }

  /** Starts every PS that is not up, whyever it ended. */
  async revive(): Promise<void> {
    for (let index = 0; index < this.shape.ps; index++)
      if (!this.cluster.isReady(psName(index))) await this.cluster.startPs(index);
  }

  async stop(): Promise<void> {
    const late = setTimeout(() => this.cluster.killAll(), STOP_MS);
    await this.client.close();
    await this.cluster.stop();
    clearTimeout(late);
    rmSync(this.directory, { recursive: true, force: true });
  }
}
