/**
 * The clients of a run as processes of their own, so that they share the cores with the roles and nothing
 * else: one fills the table or pushes to it, one trains on it, one writes checkpoints and one reads them
 * back. Each leaves when its parent does.
 */

import { describe, KintsugiError } from '../../../src/common/errors.js';
import { type Client, connect, type PushCounts } from '../../../src/library/client/client.js';
import { eachAtMost, ranges } from '../../../src/library/client/concurrent.js';
import { type Logger, monotonicMs } from '../../../src/net/log.js';
import { Arithmetic } from './arithmetic.js';
import { restoreCheckpoint, writeCheckpoint } from './checkpoint.js';
import { KeyStream, TABLE } from './keys.js';

export interface ClientOptions {
  job: 'fill' | 'push' | 'train' | 'save' | 'restore';
  scheduler: string;
  rows: number;
  dim: number;
  /** Keys of one training step. */
  batch: number;
  /** `train`: what a step computes, in units of about a millisecond. */
  compute: number;
  /** `train`: samples that were trained before, in this life of the tables. */
  samples?: number;
  /** `save`, `restore` */
  directory?: string;
}

export type ClientReport =
  /**
   * `slowestMs`: of the requests that were answered since the last one. `steps`: when steps that ended since
   * then had been due, and how long after that their pushes were acknowledged, in ms; only with a pace.
   */
  | {
      kind: 'progress';
      mono: number;
      samples: number;
      slowestMs: number;
      steps?: [due: number, ms: number][];
    }
  /** A first answer of a shard's new owner. */
  | { kind: 'served'; mono: number; group: number; member: number; gen: number }
  /** The job cannot go on: a shard is lost for ever. */
  | { kind: 'lost'; mono: number; samples: number }
  | { kind: 'saved'; rows: number }
  /** `train`: nothing is asked for until it is told to go on. */
  | { kind: 'paused' }
  | { kind: 'done'; samples: number; id: number; counts: PushCounts[]; cpuSeconds: number; seconds: number };

const CONNECT_MS = 120_000;
const PROGRESS_MS = 10;
const FILL_ROWS = 8192;
/** Pushes that may be not yet durable, as a worker has them. */
const IN_FLIGHT = 4;

function tell(report: ClientReport): void {
  process.send?.(report);
}

/** Logger that tells the parent which shards serve, and drops all other records. */
const SERVED: Logger = {
  info: (event, fields) => {
    if (event !== 'shard.served') return;
    const { group, member, gen } = fields as { group: number; member: number; gen: number };
    tell({ kind: 'served', mono: monotonicMs(), group, member, gen });
  },
  warn: () => {},
  error: () => {},
};

function gradientsOf(floats: number): Float32Array {
  // Values do not matter for speed, zeros might: all rows have bits in all their bytes.
  return Float32Array.from({ length: floats }, (_, i) => Math.sin(i * 12.9898) * 0.1);
}

/** Every key of the table once, in steps of `batch`: no pulls, no model. */
async function push(client: Client, { rows, dim, batch }: ClientOptions): Promise<void> {
  const gradients = gradientsOf(batch * dim);
  await eachAtMost(IN_FLIGHT, ranges(rows, batch), async ([start, end]) => {
    const keys = BigUint64Array.from({ length: end - start }, (_, i) => BigInt(start + i));
    await client.push([{ table: TABLE, keys, gradients: gradients.subarray(0, keys.length * dim) }]);
  });
}

/** When steps are due, however long the ones before took. */
class DueTimes {
  private due = monotonicMs();

  constructor(private readonly intervalMs: number) {}

  /** The time at which the next step is due, when it has come. */
  async next(): Promise<number> {
    const due = this.due;
    this.due += this.intervalMs;
    const left = due - monotonicMs();
    if (left > 0) await new Promise((resolve) => setTimeout(resolve, left));
    return due;
  }
}

/**
 * The loop of a worker: the next pull overlaps with the computation, and nothing waits for durability but the
 * bound on pushes in flight.
 */
class Training {
  private samples: number;
  private stopped = false;
  private lost = false;
  private slowestMs = 0;
  private readonly open = new Set<Promise<void>>();
  private pace: DueTimes | undefined;
  private steps: [due: number, ms: number][] = [];
  private paused: Promise<void> | undefined;
  resume: () => void = () => {};
  private readonly arithmetic: Arithmetic | undefined;

  constructor(
    private readonly client: Client,
    private readonly options: ClientOptions,
  ) {
    this.samples = options.samples ?? 0;
    this.arithmetic = options.compute > 0 ? new Arithmetic() : undefined;
  }

  get trained(): number {
    return this.samples;
  }

  /** From now on so many steps a second are due, however long they take. */
  setPace(stepsPerSecond: number): void {
    this.pace = new DueTimes(1000 / stepsPerSecond);
  }

  stop(): void {
    this.resume();
    this.stopped = true;
  }

  /** No further request until `resume`. */
  pause(): void {
    this.paused = new Promise((resolve) => {
      this.resume = resolve;
    });
  }

  /** When all requests that are under way are answered the parent is told. */
  private async rest(paused: Promise<void>): Promise<void> {
    await Promise.all(this.open);
    tell({ kind: 'paused' });
    await paused;
    this.paused = undefined;
  }

  async run(): Promise<void> {
    const { rows, dim, batch, compute } = this.options;
    const stream = new KeyStream(rows, batch);
    const gradients = gradientsOf(batch * dim);
    const progress = () => {
      const { samples, slowestMs, steps } = this;
      this.slowestMs = 0;
      this.steps = [];
      const ended = steps.length > 0 ? { steps } : {};
      tell({ kind: 'progress', mono: monotonicMs(), samples, slowestMs, ...ended });
    };
    progress();
    const timer = setInterval(progress, PROGRESS_MS);
    let next = this.pull(stream.next());
    while (!this.stopped && !this.lost) {
      const keys = await next;
      if (this.paused) await this.rest(this.paused);
      const due = await this.pace?.next();
      next = this.pull(stream.next());
      await this.arithmetic?.compute(compute);
      while (this.open.size >= IN_FLIGHT) await Promise.race(this.open);
      if (!this.lost) this.push(keys, gradients.subarray(0, keys.length * dim), due);
    }
    await next;
    await Promise.all(this.open);
    await this.arithmetic?.close();
    clearInterval(timer);
    progress();
  }

  private async pull(keys: BigUint64Array): Promise<BigUint64Array> {
    const from = monotonicMs();
    await this.client.pull([{ table: TABLE, keys }]).catch((error: unknown) => this.failed(error));
    this.answered(from);
    return keys;
  }

  private answered(from: number): void {
    this.slowestMs = Math.max(this.slowestMs, monotonicMs() - from);
  }

  private push(keys: BigUint64Array, gradients: Float32Array, due: number | undefined): void {
    const from = monotonicMs();
    const pushed = this.client
      .push([{ table: TABLE, keys, gradients }])
      .then(() => {
        this.answered(from);
        this.samples += this.options.batch;
        if (due !== undefined) this.steps.push([due, monotonicMs() - due]);
      })
      .catch((error: unknown) => this.failed(error))
      .finally(() => {
        this.open.delete(pushed);
      });
    this.open.add(pushed);
  }

  private failed(error: unknown): void {
    if (!(error instanceof KintsugiError && error.code === 'UNRECOVERABLE')) throw error;
    if (!this.lost) tell({ kind: 'lost', mono: monotonicMs(), samples: this.samples });
    this.lost = true;
  }
}

/** A checkpoint of every table whenever the parent says so. */
async function save(client: Client, directory: string): Promise<void> {
  for await (const order of orders()) {
    if (order === 'stop') return;
    let rows = 0;
    for (const { name } of client.tables())
      rows += await writeCheckpoint(client, name, name === TABLE ? directory : `${directory}-${name}`);
    tell({ kind: 'saved', rows });
  }
}

async function* orders(): AsyncGenerator<string> {
  const waiting: string[] = [];
  let wake = () => {};
  process.on('message', (message) => {
    waiting.push(String(message));
    wake();
  });
  for (;;) {
    const next = waiting.shift();
    if (next !== undefined) yield next;
    else
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
  }
}

async function main(): Promise<void> {
  const options = JSON.parse(process.argv[2]!) as ClientOptions;
  const audit = options.job === 'train';
  const client = await connect(options.scheduler, { connectTimeoutMs: CONNECT_MS, audit, log: SERVED });
  let samples = 0;
  const from = monotonicMs();
  if (options.job === 'fill') await push(client, { ...options, batch: FILL_ROWS });
  else if (options.job === 'push') await push(client, options);
  else if (options.job === 'save') await save(client, options.directory!);
  else if (options.job === 'restore') await restoreCheckpoint(client, TABLE, options.directory!);
  else {
    const training = new Training(client, options);
    process.on('message', (order) => {
      const [, pace] = /^pace (.+)$/.exec(String(order)) ?? [];
      if (pace !== undefined) training.setPace(Number(pace));
      else if (order === 'pause') training.pause();
      else if (order === 'resume') training.resume();
      else training.stop();
    });
    await training.run();
    samples = training.trained;
  }
  const seconds = (monotonicMs() - from) / 1000;
  const { user, system } = process.cpuUsage();
  tell({
    kind: 'done',
    samples,
    id: client.id,
    counts: client.pushCounts(),
    cpuSeconds: (user + system) / 1e6,
    seconds,
  });
  await client.close();
}

process.on('disconnect', () => process.exit(0));
main().then(
  () => process.disconnect(),
  (error: unknown) => {
    process.stderr.write(`${describe(error)}\n`);
    process.exit(1);
  },
);
