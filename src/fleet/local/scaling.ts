/**
 * `--scale ps=N@P%`: how many PS are to serve from which progress on. The job is told, processes are started
 * for it or end when they are empty, and training goes on meanwhile; one scaling after the other.
 */

import { codeOf, describe, type ErrorCode, KintsugiError } from '../../common/errors.js';
import type { Client } from '../../library/client/client.js';
import { scale } from '../../library/tools/scaling.js';
import { monotonicMs } from '../../net/log.js';
import { bytesText, percentText, timeText } from './text.js';

export interface ScaleStep {
  /** PS that are to serve. */
  ps: number;
  /** Percent of all samples. */
  percent: number;
}

/** A scaling that was begun, on the launcher's clock. */
export interface ScalingRecord {
  from: number;
  to: number;
  begun: number;
  ended: number;
  bytesMoved: number;
  shardsMoved: number;
  /** Share of all data and parity shards of the job that moved. */
  shareMoved: number;
  /** Why it did not happen; undefined when it did. */
  problem: string | undefined;
  code?: ErrorCode | undefined;
}

const MOST_PS = 256;
/** After this time a scaling is taken back, and the run is not a success. */
const LIMIT_MS = 120_000;
const POLL_MS = 50;

/** @throws BAD_ARGUMENT */
export function parseScale(text: string): ScaleStep {
  const match = /^ps=(\d{1,6})@(\d{1,3}(?:\.\d+)?)%$/.exec(text);
  const [ps, percent] = [Number(match?.[1]), Number(match?.[2])];
  if (match && ps >= 1 && ps <= MOST_PS && percent <= 100) return { ps, percent };
  throw new KintsugiError(
    'BAD_ARGUMENT',
    `--scale must be ps=N@P% with N from 1 to ${MOST_PS} and P from 0 to 100, ` +
      `for example ps=7@30%, not "${text}"`,
  );
}

/** Refuses fewer PS than the code needs. @throws NOT_ENOUGH_NODES */
export function checkScales(steps: readonly ScaleStep[], least: number): void {
  for (const { ps, percent } of steps) {
    if (ps >= least) continue;
    throw new KintsugiError(
      'NOT_ENOUGH_NODES',
      `--scale ps=${ps}@${percent}%: the code needs ${least} PS nodes`,
    );
  }
}

export interface ScalingHost {
  client(): Client;
  /** Starts one more PS. */
  startPs(): Promise<void>;
  /** Killed processes that will come back and have not yet. */
  returning(): number;
  tell(text: string): void;
}

export class Scalings {
  readonly records: ScalingRecord[] = [];
  private readonly waiting: ScaleStep[];
  private running: Promise<void> = Promise.resolve();
  private open = 0;

  constructor(
    steps: readonly ScaleStep[],
    private readonly totalSamples: number,
    private readonly host: ScalingHost,
  ) {
    this.waiting = [...steps].sort((a, b) => a.percent - b.percent);
  }

  /** True when none is under way. */
  get idle(): boolean {
    return this.open === 0;
  }

  /** Begins the scalings that are due; returns at once. */
  reach(samples: number): void {
    while (this.waiting[0] && samples * 100 >= this.waiting[0].percent * this.totalSamples) {
      const step = this.waiting.shift()!;
      this.open++;
      this.running = this.running.then(() => this.run(step)).finally(() => this.open--);
    }
  }

  private async run({ ps: to, percent }: ScaleStep): Promise<void> {
    const client = this.host.client();
    // A killed process that comes back is one of those that serve already, so it is waited for.
    while (this.host.returning() > 0) await pause();
    const status = await client.status();
    const from = status.scaling.wanted;
    const shards = status.nodes.reduce((sum, node) => sum + node.dataShards + node.parityShards, 0);
    const record: ScalingRecord = {
      from,
      to,
      begun: monotonicMs(),
      ended: 0,
      bytesMoved: 0,
      shardsMoved: 0,
      shareMoved: 0,
      problem: undefined,
    };
    this.records.push(record);
    this.host.tell(`scaling from ${from} to ${to} PS at ${percent} %`);
    try {
      await this.change(client, record, to - status.scaling.serving);
      record.shareMoved = record.shardsMoved / Math.max(1, shards);
    } catch (error) {
      record.problem = describe(error);
      record.code = codeOf(error, 'INTERNAL');
    }
    record.ended = monotonicMs();
    const { problem, shardsMoved, bytesMoved, shareMoved } = record;
    const after = timeText(record.ended - record.begun);
    if (problem !== undefined) this.host.tell(`no scaling to ${to} PS: ${problem}`);
    else {
      this.host.tell(
        `${to} PS serve after ${after}: ${shardsMoved} shards moved ` +
          `(${bytesText(bytesMoved)}, ${percentText(shareMoved)} of them)`,
      );
    }
  }

  private async change(client: Client, record: ScalingRecord, missing: number): Promise<void> {
    const { to } = record;
    const changing = scale(client, to, { timeoutMs: LIMIT_MS });
    changing.catch(() => {});
    await Promise.all(Array.from({ length: Math.max(0, missing) }, () => this.host.startPs()));
    for (let change = await changing; ; change = await scale(client, to, { timeoutMs: LIMIT_MS })) {
      record.shardsMoved += change.shardsMoved;
      record.bytesMoved += change.bytesMoved;
      // A PS that was killed meanwhile, came back and was counted twice has to leave, too.
      while (this.host.returning() > 0) await pause();
      if ((await client.status()).scaling.serving <= to) return;
    }
  }
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, POLL_MS));
}
