/** The output of the scale simulation: a table of phases and roles, and the goals. */
import type { ScaleConfig } from './config.js';
import type { RoleCount, RoleName } from './meter.js';
import type { ScalePhase } from './phases.js';

/** A goal: a measured number and its limit. */
export interface ScaleGoal {
  what: string;
  value: number;
  unit: string;
  limit: number;
  /** True: the value is to be at least the limit; else at most. */
  atLeast: boolean;
  met: boolean;
}

export interface ScaleReport {
  config: ScaleConfig;
  phases: ScalePhase[];
  goals: ScaleGoal[];
}

function goal(what: string, value: number, unit: string, limit: number, atLeast = false): ScaleGoal {
  return { what, value, unit, limit, atLeast, met: atLeast ? value >= limit : value <= limit };
}

export function reportOf(config: ScaleConfig, phases: ScalePhase[]): ScaleReport {
  const [start, steady, newcomers, one, host, out, leases] = phases as [
    ScalePhase,
    ScalePhase,
    ScalePhase,
    ScalePhase,
    ScalePhase,
    ScalePhase,
    ScalePhase,
  ];
  const surplus = (out.figures.planned! / Math.max(1, out.figures.leastMoves!) - 1) * 100;
  const perCore = (role: RoleName) => (steady.roles[role].cpuMs / steady.virtualMs) * 100;
  void start;
  const goals = [
    goal('scheduler, steady', perCore('scheduler'), '% of a core', 15),
    goal('one loss: from detection to the last map sent', one.figures.decidedMs!, 'ms', 100),
    goal('one loss: to each receiver', one.figures.mapBytes!, 'bytes', 4096),
    goal('a lost host: from detection to the last map sent', host.figures.decidedMs!, 'ms', 1600),
    goal('scale-out: plan', out.figures.planMs!, 'ms', 2000),
    goal('scale-out: moves beyond the least number', surplus, '%', 2),
    goal('leases for a second of processor time', leases.figures.perCpuSecond!, 'leases', 5000, true),
    goal("a newcomer's full map, both ends", newcomers.figures.medianMs!, 'ms', 20),
    goal('a PS, steady', perCore('ps'), '% of a core', 2),
  ];
  return { config, phases, goals };
}

const NUMBER = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 4 });
const number = (value: number): string => NUMBER.format(value);

function bytes(value: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let left = value;
  for (; left >= 1000 && unit < units.length - 1; unit++) left /= 1000;
  return `${number(left)} ${units[unit]}`;
}

/** Columns as wide as their widest cell. */
function table(rows: readonly string[][]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join('  ')
      .trimEnd();
  return rows.map(line).join('\n');
}

const HEADER = ['phase', 'role', 'received', '', 'sent', '', 'cpu ms', 'decode', 'core', 'encode', 'store'];

function rowsOf(phase: ScalePhase): string[][] {
  const shown: [string, RoleCount, number][] = [
    ['scheduler', phase.roles.scheduler, 1],
    [`each of ${phase.ps} PS`, phase.roles.ps, phase.ps],
    [`each of ${phase.workers} workers`, phase.roles.worker, Math.max(1, phase.workers)],
  ];
  return shown.map(([role, { received, sent, cpuMs, parts }, count], i) => [
    i === 0 ? phase.name : '',
    role,
    number(received.messages / count),
    bytes(received.bytes / count),
    number(sent.messages / count),
    bytes(sent.bytes / count),
    ...[cpuMs, parts.decode, parts.core, parts.encode, parts.store].map(number),
  ]);
}

export function phaseText(phase: ScalePhase): string {
  const figures = Object.entries(phase.figures).map(([name, value]) => `${name} ${number(value)}`);
  const seconds = `${number(phase.virtualMs / 1000)} s of virtual time`;
  return `${table([HEADER, ...rowsOf(phase)])}\n  ${[seconds, ...figures].join(', ')}\n`;
}

export function goalsText({ goals }: ScaleReport): string {
  const rows = goals.map(({ what, value, unit, limit, atLeast, met }) => [
    what,
    `${number(value)} ${unit}`,
    `${atLeast ? '>=' : '<='} ${number(limit)}`,
    met ? 'met' : 'missed',
  ]);
  return table([['goal', 'measured', 'wanted', ''], ...rows]);
}
