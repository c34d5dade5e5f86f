/** The operator as a client of one job: what the job says, and what it is asked for. */
import { type Client, connect } from '../client/client.js';
import { Dataset } from '../client/dataset.js';
import { describe, KintsugiError } from '../errors.js';
import type { JobStatus } from '../protocol/messages.js';
import { scale, statusIn } from '../tools/scaling.js';
import type { Asked, JobReport } from './reconcile/observed.js';
import { sameValue } from './reconcile/status.js';

const LOOK_MS = 1000;
const CONNECT_MS = 5000;
/** A scheduler that does not answer for so long is away. */
const ANSWER_MS = 3000;

export interface LinkOptions {
  /** host:port of the scheduler. */
  address: string;
  token: string;
  /** Name of the data set of the workers. */
  run: string;
  /** The report, or how a change went, is another. */
  onChange(): void;
}

function reportOf(status: JobStatus, progress: JobReport['progress']): JobReport {
  const last = status.saving?.find(({ kind }) => kind === 'full job')?.last;
  return {
    redundancy: status.redundancy,
    reasons: status.reasons,
    nodes: status.nodes.map(({ name, alive }) => ({ name, alive })),
    changing: status.scaling.changes.some(({ state }) => state === 'running'),
    ...(progress ? { progress } : {}),
    ...(last ? { lastCheckpoint: { number: last.number, rows: last.rows, bytes: last.bytes } } : {}),
  };
}

export class Link {
  report: JobReport | undefined;
  asked: Asked | undefined;
  private client: Client | undefined;
  private timer: NodeJS.Timeout | undefined;
  private closed = false;
  private looking: Promise<void> | undefined;

  constructor(readonly options: LinkOptions) {
    this.next(0);
  }

  /** Asks for so many PS; how it goes is in `asked`. */
  scale(ps: number, timeoutMs: number): void {
    if (!this.client || this.asked?.underWay) return;
    const at = Date.now();
    this.asked = { ps, at, underWay: true };
    scale(this.client, ps, { timeoutMs }).then(
      () => this.answered({ ps, at: Date.now(), underWay: false }),
      (error: unknown) => {
        const code = error instanceof KintsugiError ? `${error.code}: ` : '';
        this.answered({ ps, at: Date.now(), underWay: false, problem: `${code}${describe(error)}` });
      },
    );
  }

  async close(): Promise<void> {
    this.closed = true;
    clearTimeout(this.timer);
    await this.client?.close();
    await this.looking;
    await this.client?.close();
  }

  private answered(asked: Asked): void {
    this.asked = asked;
    if (!this.closed) this.options.onChange();
  }

  private next(ms: number): void {
    this.timer = setTimeout(() => {
      this.looking = this.look().finally(() => {
        if (!this.closed) this.next(LOOK_MS);
      });
    }, ms);
    this.timer.unref();
  }

  private async look(): Promise<void> {
    let report: JobReport | undefined;
    try {
      const { address, token, run } = this.options;
      this.client ??= await connect(address, { token, waitForJob: false, connectTimeoutMs: CONNECT_MS });
      const status = await statusIn(this.client, ANSWER_MS);
      const dataset = await Dataset.status(this.client, run);
      const progress = dataset && {
        percentage: dataset.ranges > 0 ? Math.floor((100 * dataset.finished) / dataset.ranges) : 0,
        ...{ redone: dataset.redone, complete: dataset.complete },
      };
      report = reportOf(status, progress);
    } catch (error) {
      // A scheduler that is away is dialed again. A session that ended is begun anew.
      if (!(error instanceof KintsugiError && error.code === 'UNREACHABLE')) {
        await this.client?.close();
        this.client = undefined;
      }
    }
    if (this.closed || sameValue(report, this.report)) return;
    this.report = report;
    this.options.onChange();
  }
}
