/** What many schedules went through: a simulator that never saw a thing has not tested it. */
import type { Outcome } from './world.js';

/** Name in the summary -> counter in the schedules. */
const WATCHED: Record<string, string> = {
  takeovers: 'shard.active',
  rollbacks: 'rollback',
  decodes: 'equations',
  jointDecodes: 'jointEquations',
  rebuilds: 'sink.full',
  crashes: 'crash',
  restarts: 'restart',
  absences: 'schedulerLinkBreak',
  partitions: 'partition',
  moves: 'move',
  promotions: 'promotion',
  changesDone: 'change.done',
  changesTakenBack: 'change.cancelled',
  nodesLeft: 'left',
  stalls: 'sink.stalled',
  schedulerRestarts: 'schedulerRestart',
};

export class Coverage {
  private readonly totals = {
    schedules: 0,
    complete: 0,
    unrecoverable: 0,
    violation: 0,
    withinR: 0,
    withinRComplete: 0,
    steps: 0,
    longSchedules: 0,
  };
  private readonly stats: Record<string, number> = {};

  add(outcome: Outcome): void {
    const { totals } = this;
    totals.schedules++;
    totals[outcome.result]++;
    totals.steps += outcome.steps;
    if (outcome.steps >= 300) totals.longSchedules++;
    if (!outcome.overwhelmed) {
      totals.withinR++;
      if (outcome.result === 'complete') totals.withinRComplete++;
    }
    for (const [name, count] of Object.entries(outcome.stats))
      this.stats[name] = (this.stats[name] ?? 0) + count;
  }

  get schedules(): number {
    return this.totals.schedules;
  }

  report(seconds: number, cpuSeconds: number) {
    const { schedules, violation, withinR, withinRComplete, steps, ...others } = this.totals;
    const perThousand = (count: number) => Math.round((count * 10_000) / Math.max(1, schedules)) / 10;
    const watched = Object.entries(WATCHED).map(([name, counter]) => [
      name,
      perThousand(this.stats[counter] ?? 0),
    ]);
    const known = new Set(Object.values(WATCHED));
    const rest = Object.entries(this.stats)
      .filter(([name]) => !known.has(name))
      .map(([name, count]) => [name, perThousand(count)]);
    return {
      schedules,
      ...others,
      violations: violation,
      withinR,
      withinRComplete,
      withinRRatio: withinR === 0 ? 1 : withinRComplete / withinR,
      steps,
      stepsPerSchedule: Math.round(steps / Math.max(1, schedules)),
      seconds: Math.round(seconds * 10) / 10,
      cpuSeconds: Math.round(cpuSeconds * 10) / 10,
      perCoreMinute: Math.round((schedules / cpuSeconds) * 60),
      perThousand: Object.fromEntries(watched) as Record<string, number>,
      otherPerThousand: Object.fromEntries(rest) as Record<string, number>,
    };
  }
}

export function readable(report: ReturnType<Coverage['report']>): string {
  const { schedules, complete, unrecoverable, violations, withinR, withinRComplete, longSchedules } = report;
  const seen = Object.entries(report.perThousand).map(([name, count]) => `  ${name.padEnd(18)} ${count}`);
  return [
    `${schedules} schedules: ${complete} complete, ${unrecoverable} unrecoverable, ${violations} violations`,
    `at most r lacking: ${withinR}, of which ${withinRComplete} complete`,
    `${report.stepsPerSchedule} steps each, ${longSchedules} of 300 steps or more; ${report.perCoreMinute} schedules per core minute`,
    'per thousand schedules:',
    ...seen,
  ].join('\n');
}
