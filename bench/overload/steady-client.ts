/** The well-behaved client, as its parent sees it, and the check of its rows by another client. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../src/common/errors.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { checkPushes } from '../../src/library/tools/audit.js';
import type { PushedBy } from '../common/attacks/attack.js';
import { quantile } from '../common/statistics.js';

export const STEADY_TABLE = { name: 'steady', dim: 16, rows: 4096 } as const;

export type SteadyOrder = 'begin' | 'take' | 'stop';
export type SteadyReport =
  | { kind: 'ready' }
  /** Milliseconds of the requests of the phase; those without an answer have waited so long in it. */
  | { kind: 'phase'; ms: number[]; open: number }
  /** A request that failed, in words. */
  | { kind: 'failed'; what: string }
  | { kind: 'done'; sent: number[]; acknowledged: number[]; pushed: PushedBy; wrong: string[] };
export type SteadyEnd = Extract<SteadyReport, { kind: 'done' }>;

/** Requests of a phase. */
export interface SteadyPhase {
  count: number;
  medianMs: number;
  p99Ms: number;
  worstMs: number;
  /** Without an answer at the end of the phase. */
  open: number;
}

/** A client that does not say what it is asked after this time hangs. */
const ANSWER_MS = 60_000;
const CHECK_MS = 60_000;

export class SteadyClient {
  private readonly process: ChildProcess;
  private readonly waiters: { kind: SteadyReport['kind']; resolve(report: SteadyReport): void }[] = [];
  /** Requests that failed, in words: the first 20, and how many there were. */
  readonly failures: string[] = [];
  failed = 0;
  readonly ready: Promise<unknown>;

  constructor(scheduler: string) {
    const path = fileURLToPath(new URL('./steady.js', import.meta.url));
    this.process = fork(path, [scheduler], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    this.process.on('message', (report: SteadyReport) => this.take(report));
    this.process.on('error', () => {});
    this.ready = this.told('ready');
    this.ready.catch(() => {});
  }

  private take(report: SteadyReport): void {
    if (report.kind === 'failed') {
      this.failed++;
      if (this.failures.length < 20) this.failures.push(report.what);
    }
    for (const [i, { kind, resolve }] of this.waiters.entries()) {
      if (kind !== report.kind) continue;
      this.waiters.splice(i, 1);
      return resolve(report);
    }
  }

  private async told<Kind extends SteadyReport['kind']>(
    kind: Kind,
  ): Promise<Extract<SteadyReport, { kind: Kind }>> {
    let timer: NodeJS.Timeout | undefined;
    const arrived = new Promise<SteadyReport>((resolve, reject) => {
      this.waiters.push({ kind, resolve });
      const late = new KintsugiError('TIMEOUT', `the well-behaved client does not say "${kind}"`);
      timer = setTimeout(() => reject(late), ANSWER_MS);
    });
    try {
      return (await arrived) as Extract<SteadyReport, { kind: Kind }>;
    } finally {
      clearTimeout(timer);
    }
  }

  private order(order: SteadyOrder): void {
    if (this.process.connected) this.process.send(order);
  }

  begin(): void {
    this.order('begin');
  }

  async phase(): Promise<SteadyPhase> {
    const told = this.told('phase');
    this.order('take');
    const { ms, open } = await told;
    const sorted = ms.sort((one, other) => one - other);
    const [medianMs, p99Ms] = [quantile(sorted, 0.5), quantile(sorted, 0.99)];
    return { count: ms.length, medianMs, p99Ms, worstMs: sorted.at(-1) ?? Number.NaN, open };
  }

  /** Waits until all of its requests have an answer. @throws TIMEOUT */
  async end(): Promise<SteadyEnd> {
    const told = this.told('done');
    this.order('stop');
    return told;
  }

  kill(): void {
    this.process.kill('SIGKILL');
  }
}

/** Findings of another client. */
export interface RowsFound {
  rows: number;
  /** Rows with fewer pushes than were acknowledged, or with more than were sent. */
  wrong: number;
  /** By the audit rows of all clients that pushed. */
  acknowledged: number;
  lost: number;
  duplicated: number;
}

/** Reads all rows by a client of its own. @throws what its requests are refused with, TIMEOUT */
export async function checkRows(
  scheduler: string,
  { sent, acknowledged, pushed }: SteadyEnd,
  others: readonly PushedBy[],
): Promise<RowsFound> {
  const client = await connect(scheduler, { connectTimeoutMs: CHECK_MS });
  try {
    const { name, dim, rows } = STEADY_TABLE;
    const keys = BigUint64Array.from({ length: rows }, (_, row) => BigInt(row));
    const signal = AbortSignal.timeout(CHECK_MS);
    const [values] = await client.pull([{ table: name, keys }], { signal });
    const wrong = wrongRows(values!, dim, sent, acknowledged);
    const audit = await checkPushes(client as Client, [pushed, ...others]);
    return {
      rows,
      wrong,
      acknowledged: audit.acked,
      lost: audit.lost,
      duplicated: audit.duplicated,
    };
  } finally {
    await client.close();
  }
}

/** Rows that hold what no number of pushes from `acknowledged` to `sent` gives, or different values. */
export function wrongRows(
  values: Float32Array,
  dim: number,
  sent: readonly number[],
  acknowledged: readonly number[],
): number {
  let wrong = 0;
  for (const [row, least] of acknowledged.entries()) {
    const found = values.subarray(row * dim, (row + 1) * dim);
    const count = found[0]!;
    const right = Number.isInteger(count) && count >= least && count <= sent[row]!;
    if (!right || found.some((value) => value !== count)) wrong++;
  }
  return wrong;
}
