/**
 * Helpers of the tests of library and roles: clusters that end with their test, bounded waits that
 * are driven by answers of the scheduler, rows that count exactly, and peers that do not follow the rules.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { KintsugiError } from '../../src/common/errors.js';
import { poolsFor } from '../../src/core/placement/job.js';
import { type Client, type ConnectOptions, connect, type Table } from '../../src/library/client/client.js';
import { createLogger, type LogFields, type Logger } from '../../src/net/log.js';
import type { JobStatus } from '../../src/protocol/messages.js';
import { type LocalCluster, type LocalClusterOptions, startLocalCluster } from '../../src/roles/cluster.js';
import { type PsOptions, type RunningPs, startPs } from '../../src/roles/ps/ps.js';
import {
  type RunningScheduler,
  type SchedulerOptions,
  startScheduler,
} from '../../src/roles/scheduler/scheduler.js';
import { MemoryStore } from '../../src/stores/decisions/index.js';

export const silent = createLogger('none', {});

/** A cluster that is closed at the end of the test. */
export async function cluster(options: LocalClusterOptions = {}): Promise<LocalCluster> {
  const running = await startLocalCluster(options);
  onTestFinished(() => running.close());
  return running;
}

export async function client(address: string, options: ConnectOptions = {}): Promise<Client> {
  const connected = await connect(address, options);
  onTestFinished(() => connected.close());
  return connected;
}

export async function scheduler(options: Partial<SchedulerOptions> = {}): Promise<RunningScheduler> {
  const running = await startScheduler({
    store: new MemoryStore(),
    job: 'job-under-test',
    nodes: 1,
    pools: poolsFor({ k: 1, r: 0 }, 1),
    log: silent,
    ...options,
  });
  onTestFinished(() => running.close());
  return running;
}

export async function ps(options: Partial<PsOptions> & { scheduler: string }): Promise<RunningPs> {
  const running = await startPs({ name: 'ps-0', hostLabel: 'host-0', log: silent, ...options });
  onTestFinished(() => running.close());
  return running;
}

export function temporaryDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), 'kintsugi-runtime-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** So many answers of the scheduler are looked at before a wait is given up: minutes on a busy machine. */
const MAX_ATTEMPTS = 200_000;

/** Asks until the status is as wanted; every attempt is a round trip to the scheduler. */
export async function statusWhere(
  from: Client,
  what: string,
  wanted: (status: JobStatus) => boolean,
): Promise<JobStatus> {
  let status = await from.status();
  for (let attempt = 0; !wanted(status); attempt++) {
    if (attempt === MAX_ATTEMPTS) throw new Error(`never saw ${what}: ${JSON.stringify(status)}`);
    status = await from.status();
  }
  return status;
}

/** Every group can lose r nodes, and so many nodes are alive. */
export function redundant(from: Client, alive?: number): Promise<JobStatus> {
  return statusWhere(from, `full redundancy with ${alive ?? 'all'} nodes`, (status) => {
    const count = status.nodes.filter((node) => node.alive).length;
    return status.redundancy === 'full' && (alive === undefined || count === alive);
  });
}

/** The scheduler has noticed that the node is gone. */
export function noticed(from: Client, name: string): Promise<JobStatus> {
  return statusWhere(from, `the loss of ${name}`, (status) =>
    status.nodes.some((node) => node.name === name && !node.alive),
  );
}

/** The code and message of the KintsugiError that a promise is rejected with. */
export async function rejection(promise: Promise<unknown>): Promise<{ code: string; message: string }> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof KintsugiError) return { code: error.code, message: error.message };
    throw error;
  }
  throw new Error('the promise was fulfilled');
}

export const keysOf = (...keys: (number | bigint)[]): BigUint64Array => BigUint64Array.from(keys, BigInt);

/** Keys from .. from+count-1, spread over all shards by their hash. */
export const keysFrom = (from: number, count: number): BigUint64Array =>
  BigUint64Array.from({ length: count }, (_, i) => BigInt(from + i));

export const firstKeys = (count: number): BigUint64Array => keysFrom(0, count);

/** Keys of all rows of a table, ascending. */
export async function keysIn(job: Client, table: string): Promise<bigint[]> {
  const keys: bigint[] = [];
  for await (const batch of job.scan(table, { select: 'keys' })) keys.push(...batch.keys);
  return keys.sort((a, b) => (a < b ? -1 : 1));
}

/** A table whose rows count: SGD with lr -1 adds integer gradients, exact in float32 up to 2^24. */
export const COUNTING = {
  dim: 2,
  optimizer: { kind: 'sgd', lr: -1 },
  initializer: { kind: 'zeros' },
} as const;

/** Pushes without a pause until told to stop, and knows what the sums must be. */
export class Pusher {
  readonly sums: Float32Array;
  pushes = 0;
  private stopped = false;
  private readonly running: Promise<void>;
  private readonly passed: { count: number; resolve: () => void }[] = [];

  constructor(
    private readonly from: Client,
    private readonly table: Table | string,
    private readonly rows: number,
    private readonly seed: number,
  ) {
    this.sums = new Float32Array(rows * COUNTING.dim);
    this.running = this.run();
    // The caller of `more` or `stop` gets the error; until then it is not unhandled.
    this.running.catch(() => {});
  }

  private async run(): Promise<void> {
    for (let round = 0; !this.stopped; round++) {
      const numbers = Array.from({ length: 48 }, (_, i) => (i * 7 + round * 13 + this.seed) % this.rows);
      const gradients = new Float32Array(numbers.length * COUNTING.dim);
      for (const [i, number] of numbers.entries()) {
        const value = 1 + ((round + i) % 3);
        gradients.fill(value, i * COUNTING.dim, (i + 1) * COUNTING.dim);
        for (let column = 0; column < COUNTING.dim; column++)
          this.sums[number * COUNTING.dim + column]! += value;
      }
      await this.from.push([{ table: this.table, keys: keysOf(...numbers), gradients }]);
      this.pushes++;
      for (const waiter of this.passed.splice(0)) {
        if (waiter.count <= this.pushes) waiter.resolve();
        else this.passed.push(waiter);
      }
    }
  }

  /** Resolves when so many further pushes are durable. */
  async more(count: number): Promise<void> {
    const reached = new Promise<void>((resolve) => this.passed.push({ count: this.pushes + count, resolve }));
    await Promise.race([reached, this.running]);
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await this.running;
  }
}

/** Stops the pushers; every row must be exactly the sum of what was pushed. */
export async function expectExactSums(from: Client, table: string, pushers: Pusher[]): Promise<void> {
  for (const pusher of pushers) await pusher.stop();
  const rows = pushers[0]!.sums.length / COUNTING.dim;
  const expected = new Float32Array(rows * COUNTING.dim);
  for (const { sums } of pushers) for (const [i, value] of sums.entries()) expected[i]! += value;
  const [values] = await from.pull([{ table, keys: firstKeys(rows) }]);
  expect(values).toEqual(expected);
}

/** A logger whose events can be awaited. */
export class EventLog implements Logger {
  readonly events: { level: string; event: string; fields: LogFields }[] = [];
  private readonly waiting: { event: string; resolve: (fields: LogFields) => void }[] = [];

  info(event: string, fields: LogFields = {}): void {
    this.add('info', event, fields);
  }
  warn(event: string, fields: LogFields = {}): void {
    this.add('warn', event, fields);
  }
  error(event: string, fields: LogFields = {}): void {
    this.add('error', event, fields);
  }

  private add(level: string, event: string, fields: LogFields): void {
    this.events.push({ level, event, fields });
    for (const waiter of this.waiting.splice(0)) {
      if (waiter.event === event) waiter.resolve(fields);
      else this.waiting.push(waiter);
    }
  }

  /** Resolves at the next event of this name. */
  next(event: string): Promise<LogFields> {
    return new Promise((resolve) => this.waiting.push({ event, resolve }));
  }
}

/** A push gets its number some turns after the call; from then on it will be delivered. */
export async function begun(job: Client): Promise<void> {
  for (let turn = 0; job.pushCounts().length === 0; turn++) {
    expect(turn).toBeLessThan(100);
    await Promise.resolve();
  }
}

/** A client of a cluster of its own. */
export async function connected(options: ConnectOptions = {}, of: LocalClusterOptions = {}): Promise<Client> {
  const job = await cluster({ code: '2+1', ...of });
  return client(job.address, options);
}

/**
 * A job with a table `counts`, a mirrored one beside it, and two clients that push to `rows` rows of
 * `counts`.
 */
export async function twoPushers(options: LocalClusterOptions, rows: number) {
  const job = await cluster(options);
  const clients: [Client, Client] = [await client(job.address), await client(job.address)];
  await clients[0].createTables([
    { name: 'counts', ...COUNTING },
    { name: 'mirrored', ...COUNTING, pool: 'mirrored' },
  ]);
  // A table that this client did not create, by its name, as soon as the map brings it.
  await clients[1].createTable({ name: 'counts', ...COUNTING });
  const pushers = clients.map((each, i) => new Pusher(each, 'counts', rows, i * 5));
  return { job, clients, pushers };
}
