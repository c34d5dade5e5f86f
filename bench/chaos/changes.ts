/**
 * Planned changes in the middle of the faults, asked for as `kintsugi scale`, `drain` and `rebalance` ask:
 * one more PS, one fewer, another one in the place of one, an even load. One change at a time; the scheduler
 * decides whether it can be, and takes it back when faults make it late. Which is why they need no place in
 * the ledger of faults: a shard that moves never lacks a block, and a node leaves when it holds nothing.
 */

import { KintsugiError } from '../../src/common/errors.js';
import { seededRandom } from '../../src/fleet/local/kills.js';
import { psName } from '../../src/fleet/local/processes.js';
import type { Client } from '../../src/library/client/client.js';
import { drain, rebalance, scale } from '../../src/library/tools/scaling.js';
import { monotonicMs } from '../../src/net/log.js';
import type { ChaosCluster, ChaosRole } from './cluster.js';
import { between, pause } from './pause.js';

export type ChangeKind = 'scaleOut' | 'scaleIn' | 'drain' | 'rebalance';
export type ChangeEnd = 'done' | 'takenBack' | 'refused';
export type ChangeCounts = Partial<Record<ChangeKind, Record<ChangeEnd, number>>>;

export function addChanges(sums: ChangeCounts, counts: ChangeCounts): void {
  for (const [kind, ends] of Object.entries(counts)) {
    sums[kind as ChangeKind] ??= { done: 0, takenBack: 0, refused: 0 };
    const sum = sums[kind as ChangeKind]!;
    for (const [end, count] of Object.entries(ends)) sum[end as ChangeEnd] += count;
  }
}

export interface ChangesOptions {
  cluster: ChaosCluster;
  client: Client;
  seed: number;
  /** Number of PS processes when no change is under way. */
  ps: number;
  /** True: the run begins with one more PS, and the change has the time to end. */
  first: boolean;
  onChange(kind: ChangeKind, end: ChangeEnd | 'begun', detail: string): void;
  onError(error: Error): void;
}

/** The scheduler takes back what is not done by then. */
const TIMEOUT_MS = 20_000;
/** The first one is given the time to be done, on a busy machine and in a short run, too. */
const FIRST_TIMEOUT_MS = 60_000;
const PAUSE_MS: [least: number, most: number] = [200, 3000];

export class ChaosChanges {
  readonly counts: ChangeCounts = {};
  private readonly random: () => number;
  /** Processes that are being started in the place of those that have left. */
  private readonly open = new Set<Promise<void>>();
  private nextName: number;

  constructor(private readonly options: ChangesOptions) {
    this.random = seededRandom(options.seed);
    this.nextName = options.ps;
  }

  /**
   * Changes, one after the other, until `until` (monotonic milliseconds) or an abort; then waits for what
   * is under way.
   */
  async run(until: number, signal: AbortSignal): Promise<void> {
    const { onChange, onError } = this.options;
    while (monotonicMs() < until && !signal.aborted) {
      const [kind, detail, ask] = this.next();
      onChange(kind, 'begun', detail);
      try {
        await ask();
        this.count(kind, 'done');
      } catch (error) {
        const [end, message] = endOf(error);
        if (end) this.count(kind, end, message);
        else onError(error as Error);
      }
      await pause(between(this.random, ...PAUSE_MS));
    }
    await this.settled();
  }

  /** Every process that was to be started is up. */
  async settled(): Promise<void> {
    while (this.open.size > 0) await Promise.all(this.open);
  }

  private count(kind: ChangeKind, end: ChangeEnd, detail = ''): void {
    this.counts[kind] ??= { done: 0, takenBack: 0, refused: 0 };
    this.counts[kind][end] += 1;
    this.options.onChange(kind, end, detail);
  }

  private next(): [kind: ChangeKind, detail: string, ask: () => Promise<unknown>] {
    const { cluster, client, ps } = this.options;
    const isFirst = this.options.first && this.total === 0;
    const change = { timeoutMs: isFirst ? FIRST_TIMEOUT_MS : TIMEOUT_MS };
    const many = cluster.size > ps;
    const scales = isFirst || this.random() % 2 === 0;
    if (scales && many) return ['scaleIn', `to ${ps}`, () => scale(client, ps, change)];
    if (scales) {
      const name = psName(this.nextName++);
      const more = async () => {
        this.during(cluster.startPs(name));
        await scale(client, ps + 1, change);
      };
      return ['scaleOut', `${name}, to ${ps + 1}`, more];
    }
    const role = cluster.running[this.random() % Math.max(1, cluster.running.length)];
    if (!role || this.random() % 4 === 0) return ['rebalance', '', () => rebalance(client, change)];
    return ['drain', role.name, () => drain(client, role.name, change)];
  }

  private get total(): number {
    return Object.values(this.counts).reduce(
      (sum, ends) => sum + Object.values(ends).reduce((a, b) => a + b, 0),
      0,
    );
  }

  /**
   * A PS has ended by itself, with exit 0: right if a change emptied it. Another one takes the place of a
   * drained one.
   */
  left({ name }: ChaosRole): void {
    const { cluster, client, ps } = this.options;
    const replace = async () => {
      const { scaling } = await client.status();
      if (!scaling.changes.some((change) => change.leaving.includes(name))) {
        throw new KintsugiError('INTERNAL', `${name} has left, and nobody had asked for that`);
      }
      await pause(between(this.random, ...PAUSE_MS));
      if (cluster.size < ps) await cluster.startPs(name);
    };
    this.during(replace());
  }

  private during(work: Promise<void>): void {
    const done: Promise<void> = work
      .catch((error: Error) => this.options.onError(error))
      .finally(() => this.open.delete(done));
    this.open.add(done);
  }
}

/** Undefined: neither taken back nor refused. */
function endOf(error: unknown): [end: ChangeEnd | undefined, message: string] {
  if (!(error instanceof KintsugiError)) return [undefined, ''];
  if (error.code === 'TIMEOUT') return ['takenBack', error.message];
  // Asked for a node that was given up meanwhile, or with too few others at the moment.
  if (error.code === 'NOT_ENOUGH_NODES' || error.code === 'BAD_ARGUMENT') return ['refused', error.message];
  return [undefined, ''];
}
