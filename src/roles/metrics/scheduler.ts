/** The metrics of a scheduler that leads. Status and telemetry are put together once for each scrape. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../common/package-root.js';
import { sumOf } from '../../common/statistics.js';
import { statusOf } from '../../core/scheduler/samples/live.js';
import type { Scheduler } from '../../core/scheduler/scheduler.js';
import { Durations } from '../../core/shared/meter.js';
import { monotonicMs } from '../../net/log.js';
import { goodputOf } from '../../protocol/goodput.js';
import type { JobStatus, PlanStatus, Redundancy } from '../../protocol/messages.js';
import type { DatasetStatus } from '../../protocol/samples.js';
import type { Labels, Readings } from './registry.js';

/** Counts that only the runtime of a scheduler has. */
export interface SchedulerCounts {
  storeReachable: boolean;
  refusedMessages: ReadonlyMap<string, number>;
  authFailures: number;
  transport: string;
  /** A number of each save plan that has one, by its name. */
  plans(of: (plan: PlanStatus) => number | undefined): ReadonlyMap<string, number>;
}

/** Phases of a recovery, each from the loss, but for the first. */
const PHASES = ['detection', 'keys', 'data', 'redundancy'] as const;

const STATES: readonly Redundancy[] = ['forming', 'full', 'recovering', 'degraded', 'lost'];

/** A status is work for every node and group. So one holds for so many ticks, however often somebody asks. */
const STATUS_TICKS = 20;

/** Version in package.json, which is read with the first scrape. */
let version: string | undefined;

export class SchedulerMetrics {
  readonly storeWrites = new Durations();
  private losses = 0;
  /** When a PS was lost, for what is not over yet: in milliseconds. */
  private lostAt: { data: number | undefined; redundancy: number | undefined } = {
    data: undefined,
    redundancy: undefined,
  };
  private readonly recoveries = {
    detection: new Durations(),
    keys: new Durations(),
    data: new Durations(),
    redundancy: new Durations(),
  };

  private status: { made: JobStatus; ticks: number } | undefined;

  constructor(private readonly core: Scheduler) {}

  /** An event of the core. */
  event(name: string, fields: Record<string, unknown>): void {
    const now = monotonicMs();
    if (name === 'node.lost') {
      this.losses++;
      this.lostAt.data ??= now;
      this.lostAt.redundancy ??= now;
      this.recoveries.detection.add(Number(fields.silentMs));
    } else if (name === 'recovery.keysReady') {
      this.recoveries.keys.add(Number(fields.tookMs));
    } else if (name === 'redundancy' && fields.state === 'full') this.over('redundancy', now);
  }

  /** Looks at all data shards while a loss is not over, and else at nothing. */
  tick(): void {
    if (this.status && ++this.status.ticks >= STATUS_TICKS) this.status = undefined;
    if (this.lostAt.data === undefined) return;
    const { recovering } = this.shards();
    if (recovering === 0) this.over('data', monotonicMs());
  }

  private over(phase: 'data' | 'redundancy', now: number): void {
    const since = this.lostAt[phase];
    if (since !== undefined) this.recoveries[phase].add(now - since);
    this.lostAt[phase] = undefined;
  }

  private shards(): { whole: number; recovering: number; lost: number } {
    const { map, reports } = this.core;
    const lost = new Set(
      reports.lost.filter(({ g, v }) => map.groups[g]?.version === v).map(({ g, m }) => `${g}/${m}`),
    );
    const states = { whole: 0, recovering: 0, lost: 0 };
    for (const { id, data } of map.groups)
      for (const [m, { gen, node }] of data.entries()) {
        if (lost.has(`${id}/${m}`)) states.lost++;
        else if (node !== 0 && reports.isShardComplete(id, m, gen)) states.whole++;
        else states.recovering++;
      }
    return states;
  }

  read(counts: SchedulerCounts): Readings<'scheduler'> {
    const { core } = this;
    this.status ??= { made: core.status(), ticks: 0 };
    const status = this.status.made;
    const { runs } = core.workers.telemetry(monotonicMs());
    const sets = [...core.samples.live.values()].map(statusOf);
    const running = status.scaling.changes.filter(({ state }) => state === 'running');
    // The summary is the newest, durable or not: others are told of it at once, too.
    const { epoch, redundancy, nodesAlive, nodesKnown } = core.summary();
    return {
      kintsugi_leads: 1,
      kintsugi_store_reachable: Number(counts.storeReachable),
      kintsugi_store_write_duration_seconds: this.storeWrites.read(),
      kintsugi_epoch: epoch,
      kintsugi_nodes_alive: nodesAlive,
      kintsugi_nodes_known: nodesKnown,
      kintsugi_node_up: status.nodes.map(({ name: node, host, alive }) => [{ node, host }, Number(alive)]),
      kintsugi_node_overloaded: status.nodes.map(({ name: node, host, overloaded = false }) => [
        { node, host },
        Number(overloaded),
      ]),
      kintsugi_node_losses_total: this.losses,
      kintsugi_redundant: Number(redundancy === 'full'),
      kintsugi_redundancy: new Map(STATES.map((state) => [state, Number(state === redundancy)])),
      kintsugi_recovery_duration_seconds: PHASES.map((phase) => [{ phase }, this.recoveries[phase].read()]),
      kintsugi_shards: new Map(Object.entries(this.shards())),
      kintsugi_unrecoverable_rows: sumOf(status.unrecoverable, ({ rows }) => rows),
      kintsugi_change_shards_left: sumOf(
        running,
        ({ shardsLeft, shardsMoving }) => shardsLeft + shardsMoving,
      ),
      kintsugi_tables: status.tables.length,
      kintsugi_workers: new Map(runs.map(({ run, workers }) => [run, workers])),
      kintsugi_run_samples_total: new Map(runs.map(({ run, samples }) => [run, samples])),
      kintsugi_dataset_samples_total: new Map(
        sets.map(({ name, samples }) => [name, sumOf(samples, (n) => n)]),
      ),
      kintsugi_dataset_redone_samples_total: new Map(sets.map(({ name, redone }) => [name, redone])),
      kintsugi_dataset_ranges: sets.flatMap(rangesOf),
      kintsugi_goodput: new Map(
        runs.flatMap((each): [string, number][] => {
          const goodput = goodputOf([each]);
          return goodput === undefined ? [] : [[each.run, goodput]];
        }),
      ),
      kintsugi_checkpoint_number: counts.plans(({ last }) => last?.number),
      kintsugi_checkpoint_age_seconds: counts.plans(({ last }) => last && last.agoMs / 1000),
      kintsugi_checkpoint_seconds: counts.plans(({ last }) => last && last.tookMs / 1000),
      kintsugi_checkpoint_bytes: counts.plans(({ last }) => last?.bytes),
      kintsugi_checkpoint_failing: counts.plans(({ failure }) => Number(failure !== undefined)),
      kintsugi_refused_messages_total: counts.refusedMessages,
      kintsugi_auth_failures_total: counts.authFailures,
      kintsugi_build_info: [
        [{ version: packageVersion(), node: process.version, transport: counts.transport }, 1],
      ],
    };
  }
}

function rangesOf({ name: run, ranges, finished, open, setAside }: DatasetStatus): [Labels, number][] {
  const waiting = ranges - finished - open - setAside.length;
  const states = { finished, open, waiting: Math.max(0, waiting), set_aside: setAside.length };
  return Object.entries(states).map(([state, count]) => [{ run, state }, count]);
}

function packageVersion(): string {
  version ??= (JSON.parse(readFileSync(join(PACKAGE_ROOT, 'package.json'), 'utf8')) as { version: string })
    .version;
  return version;
}
