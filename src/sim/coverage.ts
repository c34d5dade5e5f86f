/**
 * Coverage counts what many schedules went through: a simulator that never saw a situation has not tested it.
 * Reports have plain counts, so those of several runs add up.
 */
import { MIN_STEPS, type ScheduleOutcome } from './world.js';

/** Name in the summary -> counter in the schedules. */
const WATCHED: Record<string, string> = {
  takeovers: 'shard.active',
  rollbacks: 'rollback',
  decodes: 'equations',
  jointDecodes: 'jointEquations',
  rebuilds: 'sink.complete',
  crashes: 'crash',
  gone: 'gone',
  restarts: 'restart',
  absences: 'schedulerLinkBreak',
  partitions: 'partition',
  vanished: 'vanished',
  moves: 'move',
  promotions: 'promotion',
  swaps: 'swap',
  changesDone: 'change.done',
  changesTakenBack: 'change.cancelled',
  nodesLeft: 'left',
  stalls: 'sink.stalled',
  refusals: 'shard.refused',
  schedulerRestarts: 'schedulerRestart',
  clientCrashes: 'clientCrash',
  clientGoodbyes: 'clientDetach',
  endsTold: 'sessionsEnded',
  tombstones: 'tombstone',
  shardsChecked: 'shardsChecked',
  survivorsChecked: 'survivorsChecked',
  shardsLost: 'shardsLost',
  adagradCompared: 'adagradCompared',
  momentumCompared: 'momentumCompared',
  adamwCompared: 'adamwCompared',
  ftrlCompared: 'ftrlCompared',
  scans: 'scan',
  evictionsTold: 'evictionsTold',
  evictionGaps: 'evictionGap',
  rangesFinished: 'rangeFinished',
  rangesRedone: 'rangeRedone',
  rangesResumed: 'rangeResumed',
  rangesSetAside: 'rangeSetAside',
  workersLost: 'worker.lost',
  checkpoints: 'manifest',
  checkpointsFailed: 'checkpoint.failed',
  increments: 'increment',
  removedByIncrements: 'removed',
  instants: 'instant',
  restores: 'killAll',
  restored: 'restore.done',
  drops: 'tableDropped',
  deletions: 'deleted',
  rowsExpired: 'expiredCompared',
  rowsDisplaced: 'displacedCompared',
  keysWaiting: 'waitingCompared',
  pullsOfGone: 'pulledGone',
  rowsHidden: 'replica.row.hidden',
  slicedPulls: 'slicedPulls',
};

/** A schedule that should have completed, or broke a guarantee. */
interface ScheduleFailure {
  seed: number;
  step: number;
  reason: string;
}

interface EventCounts {
  schedules: number;
  complete: number;
  unrecoverable: number;
  violations: number;
  /** Schedules in which no group ever lacked more than r seats. */
  withinR: number;
  /** Schedules of `withinR` that completed. */
  withinRComplete: number;
  /** Steps of all schedules. */
  steps: number;
  /** Schedules of MIN_STEPS steps or more. */
  longSchedules: number;
}

const COUNTS: readonly (keyof EventCounts)[] = [
  'schedules',
  'complete',
  'unrecoverable',
  'violations',
  'withinR',
  'withinRComplete',
  'steps',
  'longSchedules',
];

export interface SimReport extends EventCounts {
  /** First and last seed of every run in the report. */
  seeds: [first: number, last: number][];
  withinRRatio: number;
  stepsPerSchedule: number;
  seconds: number;
  cpuSeconds: number;
  perCoreMinute: number;
  perThousand: Record<string, number>;
  otherPerThousand: Record<string, number>;
  /** Schedules with a violation, and schedules within r that did not complete. */
  failures: ScheduleFailure[];
  /** Name of a counter -> its sum over all schedules. */
  events: Record<string, number>;
}

export class Coverage {
  private readonly counts = Object.fromEntries(COUNTS.map((name) => [name, 0])) as unknown as EventCounts;
  private readonly events: Record<string, number> = {};
  private readonly seeds: [number, number][] = [];
  private readonly failures: ScheduleFailure[] = [];
  private earlierSeconds = 0;
  private earlierCpuSeconds = 0;

  add(outcome: ScheduleOutcome): void {
    const { counts } = this;
    const { seed, result, overwhelmed } = outcome;
    counts.schedules++;
    counts[result === 'violation' ? 'violations' : result]++;
    counts.steps += outcome.steps;
    if (outcome.steps >= MIN_STEPS) counts.longSchedules++;
    if (!overwhelmed) {
      counts.withinR++;
      if (result === 'complete') counts.withinRComplete++;
    }
    if (result === 'violation' || (!overwhelmed && result !== 'complete'))
      this.failures.push({ seed, step: outcome.steps, reason: outcome.message || result });
    this.count(outcome.stats);
    const run = this.seeds.at(-1);
    if (run && run[1] + 1 === seed) run[1] = seed;
    else this.seeds.push([seed, seed]);
  }

  /** Adds the report of another run. @throws when a schedule would count twice */
  merge(report: SimReport): void {
    for (const [first, last] of report.seeds) {
      if (this.seeds.some((run) => first <= run[1] && last >= run[0]))
        throw new Error(`the seeds ${first} to ${last} are in two reports`);
    }
    for (const name of COUNTS) this.counts[name] += report[name];
    this.seeds.push(...report.seeds);
    this.failures.push(...report.failures);
    this.count(report.events);
    this.earlierSeconds += report.seconds;
    this.earlierCpuSeconds += report.cpuSeconds;
  }

  private count(events: Readonly<Record<string, number>>): void {
    for (const [name, count] of Object.entries(events)) this.events[name] = (this.events[name] ?? 0) + count;
  }

  get schedules(): number {
    return this.counts.schedules;
  }

  /** The report. Times are those of the schedules that were added one by one. */
  report(ownSeconds: number, ownCpuSeconds: number): SimReport {
    const { schedules, withinR, withinRComplete, steps } = this.counts;
    const seconds = this.earlierSeconds + ownSeconds;
    const cpuSeconds = this.earlierCpuSeconds + ownCpuSeconds;
    const perThousand = (count: number) => Math.round((count * 10_000) / Math.max(1, schedules)) / 10;
    const known = new Set(Object.values(WATCHED));
    const watched = Object.entries(WATCHED).map(([name, event]) => [name, this.events[event] ?? 0] as const);
    const rest = Object.entries(this.events).filter(([name]) => !known.has(name));
    const table = (entries: readonly (readonly [string, number])[]) =>
      Object.fromEntries(entries.map(([name, count]) => [name, perThousand(count)]));
    return {
      ...this.counts,
      seeds: this.seeds.map(([first, last]) => [first, last]),
      withinRRatio: withinR === 0 ? 1 : withinRComplete / withinR,
      stepsPerSchedule: Math.round(steps / Math.max(1, schedules)),
      seconds: Math.round(seconds * 10) / 10,
      cpuSeconds: Math.round(cpuSeconds * 10) / 10,
      perCoreMinute: cpuSeconds === 0 ? 0 : Math.round((schedules / cpuSeconds) * 60),
      perThousand: table(watched),
      otherPerThousand: table(rest),
      failures: [...this.failures],
      events: { ...this.events },
    };
  }
}

export function readable(report: SimReport): string {
  const { schedules, complete, unrecoverable, violations, withinR, withinRComplete, longSchedules } = report;
  const seen = Object.entries(report.perThousand).map(([name, count]) => `  ${name.padEnd(18)} ${count}`);
  const percent = (report.withinRRatio * 100).toFixed(3);
  return [
    `${schedules} schedules: ${complete} complete, ${unrecoverable} unrecoverable, ${violations} violations`,
    `at most r lacking: ${withinR}, of which ${withinRComplete} complete (${percent} %)`,
    `${report.stepsPerSchedule} steps each, ${longSchedules} of ${MIN_STEPS} steps or more; ` +
      `${report.perCoreMinute} schedules per core minute`,
    ...report.failures.map(({ seed, step, reason }) => `seed ${seed} (step ${step}): ${reason}`),
    'per thousand schedules:',
    ...seen,
  ].join('\n');
}
