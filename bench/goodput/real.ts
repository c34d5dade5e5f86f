/**
 * A job of real processes for some minutes, with SIGKILLs at their times. A job that cannot go on is killed
 * as a whole, and a new one is started at once, from its newest checkpoint if there is one. The clock begins
 * when the first job trains: its start is the same in all.
 */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../src/common/errors.js';
import { sumOf } from '../../src/common/statistics.js';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { goodputReport } from '../../src/fleet/local/goodput.js';
import { bareJob } from '../../src/fleet/local/measure.js';
import { Processes, psName } from '../../src/fleet/local/processes.js';
import { inOrder } from '../../src/fleet/local/report.js';
import { codeText } from '../../src/fleet/planner/question.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { Dataset } from '../../src/library/client/dataset.js';
import { monotonicMs } from '../../src/net/log.js';
import { checkpointNumbers, readManifest } from '../../src/stores/checkpoint/checkpoints.js';
import { withPlace } from '../../src/stores/checkpoint/open.js';
import type { Failure } from './failures.js';
import type { GoodputOptions, GoodputWay } from './options.js';

const MODEL = fileURLToPath(new URL('../common/waiting-model.js', import.meta.url));
const RUN = 'goodput';
/** Compute of a batch: a wait, so that many workers fit on one machine. */
const WAIT_MS = 100;
const BATCH = 64;
const EPOCHS = 1000;
const RESPAWN_MS = 500;
const CONNECT_MS = 60_000;
/** A lost job is known to be lost within this time. */
const LOST_MS = 60_000;
/** How many jobs in a row may fail although nothing was killed in them. */
const MOST_FAILED = 3;

export interface RealGoodput {
  goodput: number;
  /** By the workers' own clocks, as `kintsugi local` reports it; undefined: there was more than one job. */
  told: number | undefined;
  samples: number;
  killed: { ps: number; workers: number };
  /** New jobs after one that could not go on. */
  restarts: number;
  /** Seconds from a SIGKILL that ended a job until the next one trained. */
  outages: number[];
}

export type RealOptions = Pick<GoodputOptions, 'ps' | 'workers' | 'seconds' | 'interval' | 'log' | 'tell'>;

class GoodputRun {
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-goodput-'));
  private readonly place = join(this.directory, 'checkpoints');
  private readonly killed = { ps: 0, workers: 0 };
  private readonly outages: number[] = [];
  /** When the first job trained. */
  private start: number | undefined;
  private lives = 0;
  private next = 0;
  private struckAt: number | undefined;
  private newest: { samples: number; events: RoleEvent[] } = { samples: 0, events: [] };

  constructor(
    private readonly options: RealOptions,
    private readonly way: GoodputWay,
    private readonly data: string,
    private readonly failures: readonly Failure[],
  ) {}

  private get now(): number {
    return this.start === undefined ? 0 : (monotonicMs() - this.start) / 1000;
  }

  async run(): Promise<RealGoodput> {
    const { workers, seconds } = this.options;
    let failed = 0;
    try {
      while (this.now < seconds) {
        const since = this.struckAt;
        this.struckAt = undefined;
        const error = await this.life(since).catch((reason: Error) => reason);
        if (!error) continue;
        failed = this.struckAt === undefined ? failed + 1 : 0;
        if (failed === MOST_FAILED) throw error;
        this.options.tell(`${this.way.name}: the job ended at ${this.now.toFixed(1)} s: ${error.message}`);
      }
      const useful = ((this.newest.samples / BATCH) * WAIT_MS) / 1000;
      return {
        goodput: useful / (workers * seconds),
        told: this.lives === 1 ? (goodputReport(this.newest.events).ratio ?? undefined) : undefined,
        samples: this.newest.samples,
        killed: this.killed,
        restarts: this.lives - 1,
        outages: this.outages,
      };
    } finally {
      rmSync(this.directory, { recursive: true, force: true });
    }
  }

  private async restored(): Promise<{ url: string; number: number } | undefined> {
    if (!this.way.checkpoints) return undefined;
    const number = (await withPlace(this.place, checkpointNumbers).catch(() => [])).at(-1);
    return number === undefined ? undefined : { url: this.place, number };
  }

  /** One job, until the time is over or it cannot go on. @throws what ended it */
  private async life(since: number | undefined): Promise<void> {
    const { ps, workers, seconds, interval, log } = this.options;
    const events: RoleEvent[] = [];
    const checkpoint = this.way.checkpoints
      ? ({ url: this.place, everyMs: interval * 1000, keep: 2, rate: 0, kind: 'full job' } as const)
      : undefined;
    const processes = new Processes({
      options: { ...bareJob(ps, codeText(this.way.code)), audit: false, respawnMs: RESPAWN_MS, checkpoint },
      directory: join(this.directory, `life-${this.lives++}`),
      onEvent: (event, line) => {
        events.push(event);
        if (log !== undefined) appendFileSync(log, `${line}\n`);
      },
      onBack: () => {},
    });
    processes.restore = await this.restored();
    let client: Client | undefined;
    let over = false;
    try {
      await processes.race(
        (async () => {
          await processes.startScheduler();
          await Promise.all(Array.from({ length: ps }, (_, index) => processes.startPs(index)));
          const args = ['--run', RUN, '--data', this.data, '--epochs', `${EPOCHS}`, '--model', MODEL];
          args.push('--model-option', `waitMs=${WAIT_MS}`, '--dim', '8', '--batch', `${BATCH}`);
          args.push('--range-batches', '4');
          const trained = Array.from({ length: workers }, (_, i) => processes.train(`worker-${i}`, args));
          await Promise.all(trained);
          this.start ??= monotonicMs();
          if (since !== undefined) this.outages.push(this.now - since);
          client = await connect(processes.address, { connectTimeoutMs: CONNECT_MS });
          await this.strikes(processes, () => over);
        })(),
      );
      // As far as it came at that moment.
      const status = await processes.race(Dataset.status(client!, RUN));
      const samples = sumOf(status?.samples ?? [], (each) => each);
      this.newest = { samples, events: inOrder(events) };
    } catch (error) {
      if (this.now >= seconds) await this.tooLate();
      throw error;
    } finally {
      over = true;
      await processes.abandon();
      await client?.close();
    }
  }

  /** The time was over while there was no job: what counts is what the next one would begin with. */
  private async tooLate(): Promise<void> {
    const restored = await this.restored();
    const manifest =
      restored && (await withPlace(restored.url, (place) => readManifest(place, restored.number)));
    const samples = manifest?.samples?.datasets.flatMap((each) => each.samples) ?? [];
    this.newest = { samples: sumOf(samples, (each) => each), events: [] };
  }

  /** Kills what is due, and waits. What is down when its time comes is not killed. */
  private async strikes(processes: Processes, over: () => boolean): Promise<void> {
    const { seconds, tell } = this.options;
    const late = this.now;
    while (this.failures[this.next] && this.failures[this.next]!.at < late) this.next++;
    for (;;) {
      const failure = this.failures[this.next];
      const until = Math.min(seconds, failure?.at ?? seconds);
      await sleep(Math.max(0, (until - this.now) * 1000));
      if (over()) return;
      if (!failure || failure.at >= seconds) return;
      this.next++;
      const { role, index } = failure;
      const name = role === 'ps' ? psName(index) : `worker-${index}`;
      if (!processes.isReady(name)) continue;
      tell(`${this.way.name}: SIGKILL of ${name} at ${this.now.toFixed(1)} s`);
      this.killed[role === 'ps' ? 'ps' : 'workers']++;
      if (role === 'ps') this.struckAt = this.now;
      processes.kill(role, name);
      if (role === 'ps' && this.way.code.r === 0) await lost(processes);
    }
  }
}

/** A job without redundancy that has lost a PS ends by itself. */
async function lost(processes: Processes): Promise<never> {
  await processes.race(sleep(LOST_MS));
  throw new KintsugiError('TIMEOUT', `the job has not ended ${LOST_MS / 1000} s after it lost a PS`);
}

/** @throws what ends a job three times although nothing was killed */
export function runReal(
  options: RealOptions,
  way: GoodputWay,
  data: string,
  failures: readonly Failure[],
): Promise<RealGoodput> {
  return new GoodputRun(options, way, data, failures).run();
}
